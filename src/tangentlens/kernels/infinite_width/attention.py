"""Self-attention over raw embeddings, alone or followed by a hidden layer."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.kernels.infinite_width.documents import (
    Documents,
    as_documents,
    common_counts,
    pooled,
    vocabulary_size,
    weighted_counts,
)
from tangentlens.kernels.infinite_width.hidden_layer import UNIT, Deviations, hidden_layer_kernel, total
from tangentlens.kernels.infinite_width.quadrature import Elementwise


def attention_weights(
    document: Int[Tensor, "_position"], same_token_logit: float
) -> Float[Tensor, "position position"]:
    """Row i: how position i attends, when equal words score `same_token_logit` and different words zero."""
    return torch.softmax(same_token_logit * (document[:, None] == document[None]).double(), dim=-1)


def attention_kernel(
    documents: Documents,
    others: Documents | None = None,
    *,
    same_token_logit: float | None = None,
    deviations: Deviations = UNIT,
) -> Float[Tensor, "example other"]:
    """Theta = (s_v^2 + s_e^2) sum_w A_x(w) A_x'(w), A_x(w) the attention mass that lands on word w (sun2023, derived).

    No term crosses different words, so self-attention has no feature bias. Logits divided by the width tend to s_e^2
    for equal words, the default; divided by its root they tend to s_e^2 sqrt(width), to be passed as
    `same_token_logit`. Gradients through the softmax vanish under the first scaling only.
    """
    groups = attention_kernel_by_group(documents, others, same_token_logit=same_token_logit, deviations=deviations)
    return total(groups)


def attention_kernel_by_group(
    documents: Documents,
    others: Documents | None = None,
    *,
    same_token_logit: float | None = None,
    deviations: Deviations = UNIT,
) -> dict[str, Float[Tensor, "example other"]]:
    """The same kernel split over readout and embedding gradients."""
    e, v = deviations.embedding**2, deviations.readout**2
    logit = e if same_token_logit is None else same_token_logit
    rows = as_documents(documents)
    columns = rows if others is None else as_documents(others)
    vocabulary = vocabulary_size(rows, columns)
    mass, other_mass = (
        weighted_counts(group, [attention_weights(row, logit).sum(0) for row in group], vocabulary)
        for group in (rows, columns)
    )
    common = common_counts(mass, other_mass)
    return {"readout": e * common, "embedding": v * common}


def attention_mlp_kernel(
    documents: Documents,
    others: Documents | None = None,
    *,
    same_token_logit: float | None = None,
    activation: str | Elementwise = "relu",
    deviations: Deviations = UNIT,
) -> Float[Tensor, "example other"]:
    """Attention, then phi(W h_i / sqrt d) per position, then the sum: the MLP's formula over attention mixtures.

    Two positions overlap by <a_i, a'_j>, their attention rows folded on words. Disjoint texts overlap by zero, and a
    phi of positive mean brings the bias back (sun2023, Figure 2i as its summary reports it).
    """
    groups = attention_mlp_kernel_by_group(
        documents, others, same_token_logit=same_token_logit, activation=activation, deviations=deviations
    )
    return total(groups)


def attention_mlp_kernel_by_group(
    documents: Documents,
    others: Documents | None = None,
    *,
    same_token_logit: float | None = None,
    activation: str | Elementwise = "relu",
    deviations: Deviations = UNIT,
    chunk: int = 64,
) -> dict[str, Float[Tensor, "example other"]]:
    """The same kernel split over readout, hidden and embedding gradients. Cost: (positions)^2 expectations."""
    logit = deviations.embedding**2 if same_token_logit is None else same_token_logit
    rows = as_documents(documents)
    columns = rows if others is None else as_documents(others)
    vocabulary = vocabulary_size(rows, columns)
    others_of, other_mixture = _mixtures(columns, logit, vocabulary)
    parts: dict[str, list[Tensor]] = {}
    for start in range(0, len(rows), chunk):
        block = rows[start : start + chunk]
        document_of, mixture = _mixtures(block, logit, vocabulary)
        groups = hidden_layer_kernel(
            _squared_length(mixture)[:, None],
            _squared_length(other_mixture)[None],
            common_counts(mixture, other_mixture),
            activation=activation,
            deviations=deviations,
        )
        for group, values in groups.items():
            part = pooled(values, document_of, others_of, len(block), len(columns))
            parts.setdefault(group, []).append(part)
    return {group: torch.cat(blocks) for group, blocks in parts.items()}


def _mixtures(
    rows: list[Int[Tensor, "_position"]], logit: float, vocabulary: int
) -> tuple[Int[Tensor, "_position"], Float[Tensor, "position token"]]:
    """What each position reads, as sparse weights over words, and the document it belongs to."""
    weights = [attention_weights(row, logit) for row in rows]
    per_position = weighted_counts(
        [row for row in rows for _ in row], [a for matrix in weights for a in matrix], vocabulary
    )
    return torch.cat([torch.full_like(row, number) for number, row in enumerate(rows)]), per_position


def _squared_length(sparse: Float[Tensor, "position token"]) -> Float[Tensor, "_position"]:
    return (sparse * sparse).sum(1).to_dense()
