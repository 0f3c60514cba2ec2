"""A word acts as a matrix on its neighbour's vector: only exact ordered bigrams are left in the limit."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.kernels.infinite_width.documents import (
    Documents,
    as_documents,
    common_counts,
    token_counts,
    vocabulary_size,
)
from tangentlens.kernels.infinite_width.hidden_layer import UNIT, Deviations, total

Form = Literal["full", "diagonal"]


def matrix_vector_kernel(
    documents: Documents,
    others: Documents | None = None,
    *,
    form: Form = "full",
    deviations: Deviations = UNIT,
) -> Float[Tensor, "example other"]:
    """Theta = C * (number of equal ordered bigrams): no bias, no part for single words (sun2023, our derivation).

    The paper's own definition was not available, so both candidates are here. full: s = v . sum_t M_{t-1} e_t / d, one
    matrix per word, C = s_m^2 s_e^2 + s_v^2 s_e^2 + s_v^2 s_m^2. diagonal: s = v . sum_t (W e_{t-1} / sqrt d) * e_t /
    sqrt d, C = s_w^2 s_e^4 + s_v^2 s_e^4 + 2 s_v^2 s_w^2 s_e^2. A document of one word has no bigram and a zero
    kernel: put a begin mark before it (`with_begin`).

    >>> matrix_vector_kernel([(0, 1, 2)], [(0, 1, 2), (2, 1, 0)])
    tensor([[6., 0.]], dtype=torch.float64)
    """
    return total(matrix_vector_kernel_by_group(documents, others, form=form, deviations=deviations))


def matrix_vector_kernel_by_group(
    documents: Documents,
    others: Documents | None = None,
    *,
    form: Form = "full",
    deviations: Deviations = UNIT,
) -> dict[str, Float[Tensor, "example other"]]:
    """The same kernel split over readout, hidden (the matrices) and embedding gradients."""
    e, w, v = deviations.embedding**2, deviations.hidden**2, deviations.readout**2
    if form == "full":
        scales = {"readout": w * e, "hidden": v * e, "embedding": v * w}
    elif form == "diagonal":
        scales = {"readout": w * e * e, "hidden": v * e * e, "embedding": 2 * v * w * e}
    else:
        raise ValueError(f"form must be 'full' or 'diagonal', got {form!r}")
    rows = as_documents(documents)
    columns = rows if others is None else as_documents(others)
    matches = _equal_bigrams(rows, columns)
    return {group: scale * matches for group, scale in scales.items()}


def _equal_bigrams(
    rows: list[Int[Tensor, "_position"]], columns: list[Int[Tensor, "_position"]]
) -> Float[Tensor, "example other"]:
    """sum over bigrams of count times other's count, with every bigram numbered as a token of its own."""
    size = vocabulary_size(rows, columns)
    pairs = [row[:-1] * size + row[1:] for row in [*rows, *columns]]
    numbers = torch.unique(torch.cat(pairs))
    matches = torch.zeros(len(rows), len(columns), dtype=torch.float64)
    # documents of one word have no bigram, hence a row of zeros
    here = [n for n in range(len(rows)) if len(pairs[n])]
    there = [n for n in range(len(columns)) if len(pairs[len(rows) + n])]
    if here and there:
        bigrams = [torch.searchsorted(numbers, pairs[n]) for n in here]
        other_bigrams = [torch.searchsorted(numbers, pairs[len(rows) + n]) for n in there]
        common = common_counts(token_counts(bigrams, len(numbers)), token_counts(other_bigrams, len(numbers)))
        matches[torch.tensor(here)[:, None], torch.tensor(there)[None]] = common
    return matches
