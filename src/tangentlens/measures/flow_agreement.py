"""Kernel flow beside training: how well it foresaw the scores, what knew as much without it, and whether it applies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.errors import BadInput
from tangentlens.measures.drift import Drift


@dataclass(frozen=True)
class FlowAgreement:
    """`relative_error` is |trained - predicted| / |predicted|.

    `of_groups` is the correlation that the trained scores' own group means have with them: what knowing each token's
    group, and nothing of a kernel, could reach at best; NaN where no groups were given.
    """

    correlation: float
    relative_error: float
    of_groups: float
    drift: Drift

    @property
    def verdict(self) -> str:
        beside = "" if self.of_groups != self.of_groups else f" (knowing their groups alone: {self.of_groups:.3f})"
        seen = f"correlation {self.correlation:.3f}{beside}, relative error {self.relative_error:.3g}"
        return f"predicted against trained scores: {seen}; {self.drift.verdict}"


def flow_agreement(
    predicted: Float[Tensor, "*shape"],
    trained: Float[Tensor, "*_shape"],
    drift: Drift,
    *,
    groups: Int[Tensor, "_token"] | None = None,
) -> FlowAgreement:
    """Scores foreseen by `kernel_flow` against the trained ones, beside the drift of the kernel on the way there.

    Both less their initial values, or neither. With two clusters of tokens any prediction that knows the cluster
    correlates: give `groups` (a number for each token, the first axis of the scores), and read the error too.

    >>> from tangentlens.measures.drift import drift
    >>> still = drift(torch.eye(2), torch.eye(2))
    >>> round(flow_agreement(torch.tensor([1.0, 2.0]), torch.tensor([1.1, 2.2]), still).relative_error, 3)
    0.1
    """
    if predicted.shape != trained.shape or predicted.numel() < 2:
        raise BadInput(
            f"expected as many predicted as trained scores, at least two, got {tuple(predicted.shape)} and "
            f"{tuple(trained.shape)}; score the same tokens and labels"
        )
    if groups is not None and (trained.ndim == 0 or len(groups) != len(trained)):
        raise BadInput(f"expected a group for each of {len(trained)} tokens, got {len(groups)}")
    left, right = predicted.detach().double().cpu(), trained.detach().double().cpu()
    size = left.norm()
    return FlowAgreement(
        correlation=correlation(left, right),
        relative_error=float((right - left).norm() / size) if size > 0 else float("inf"),
        of_groups=float("nan") if groups is None else correlation(_group_means(right, groups.cpu()), right),
        drift=drift,
    )


def correlation(left: Float[Tensor, "*shape"], right: Float[Tensor, "*shape"]) -> float:
    """Pearson's, over all entries; NaN where one side is constant."""
    return float(torch.corrcoef(torch.stack([left.double().flatten(), right.double().flatten()]))[0, 1])


def _group_means(scores: Float[Tensor, "token *label"], groups: Int[Tensor, "token"]) -> Float[Tensor, "token *label"]:
    _, group = torch.unique(groups, return_inverse=True)
    sums = scores.new_zeros(int(group.max()) + 1, *scores.shape[1:]).index_add_(0, group, scores)
    times = torch.bincount(group).to(scores).reshape(-1, *[1] * (scores.ndim - 1))
    return (sums / times)[group]
