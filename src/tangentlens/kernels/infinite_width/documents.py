"""Documents as lists of token numbers: what every closed-form kernel of a text model takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

Documents = Sequence[Sequence[int]] | Sequence[Int[Tensor, "_position"]] | Int[Tensor, "_example _position"]


def as_documents(documents: Documents) -> list[Int[Tensor, "_position"]]:
    """Each document as a vector of token numbers, in its own length: padding would be read as a token.

    >>> [d.tolist() for d in as_documents([(0, 1, 2), (2,)])]
    [[0, 1, 2], [2]]
    """
    rows = [torch.as_tensor(document) for document in documents]
    if not rows:
        raise ValueError("expected at least one document, got none")
    for number, row in enumerate(rows):
        if row.ndim != 1 or row.is_floating_point() and len(row):
            raise ValueError(
                f"document {number} must be a list of token numbers, got {row.dtype} of shape {tuple(row.shape)}; "
                "turn words into numbers first"
            )
        if not len(row):
            raise ValueError(f"document {number} is empty: it has no kernel; leave it out")
        if row.min() < 0:
            raise ValueError(f"document {number} has the token number {int(row.min())}; numbers start at 0")
    return [row.long() for row in rows]


def with_begin(documents: Documents, begin: int) -> list[Int[Tensor, "_position"]]:
    """Each document after a begin mark, so that a matrix-vector model has a bigram for its first word."""
    return [torch.cat([row.new_tensor([begin]), row]) for row in as_documents(documents)]


def vocabulary_size(*groups: Sequence[Int[Tensor, "_position"]]) -> int:
    return 1 + max(int(row.max()) for group in groups for row in group)


def token_counts(documents: Documents, vocabulary: int | None = None) -> Float[Tensor, "example token"]:
    """How often each token occurs in each document, as a sparse matrix.

    >>> token_counts([(0, 2, 2)]).to_dense()
    tensor([[1., 0., 2.]], dtype=torch.float64)
    """
    rows = as_documents(documents)
    return weighted_counts(rows, [torch.ones(len(row), dtype=torch.float64) for row in rows], vocabulary)


def weighted_counts(
    rows: Sequence[Int[Tensor, "_position"]],
    weights: Sequence[Float[Tensor, "_position"]],
    vocabulary: int | None = None,
) -> Float[Tensor, "example token"]:
    """Sparse (example, token) sums of one weight per position."""
    example = torch.cat([torch.full_like(row, number) for number, row in enumerate(rows)])
    shape = (len(rows), vocabulary_size(rows) if vocabulary is None else vocabulary)
    where = torch.stack([example, torch.cat(list(rows))])
    return torch.sparse_coo_tensor(where, torch.cat(list(weights)), shape, check_invariants=True).coalesce()


def common_counts(
    counts: Float[Tensor, "example token"], others: Float[Tensor, "other token"], chunk: int = 256
) -> Float[Tensor, "example other"]:
    """sum_w c_x(w) c_x'(w) between sparse count matrices, a block of dense columns at a time."""
    chunks = (others.index_select(0, part) for part in torch.arange(others.shape[0]).split(chunk))
    return torch.cat([torch.sparse.mm(counts, part.to_dense().T) for part in chunks], dim=1)


def pooled(
    values: Float[Tensor, "position other_position"],
    document_of: Int[Tensor, "_position"],
    other_document_of: Int[Tensor, "other_position"],
    examples: int,
    others: int,
) -> Float[Tensor, "example other"]:
    """Sum a kernel between positions over the documents they belong to."""
    rows = values.new_zeros(examples, values.shape[1]).index_add_(0, document_of, values)
    return rows.new_zeros(examples, others).index_add_(1, other_document_of, rows)
