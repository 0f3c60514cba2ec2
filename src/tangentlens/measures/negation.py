"""The negation probe: does a negator turn an adjective's score around, beyond what adding the two scores does?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.errors import BadInput

GROUPS = ("positive", "not positive", "negative", "not negative")


@dataclass(frozen=True)
class NegationGrid:
    """One entry per group of GROUPS: the mean score, the share with the right sign, and both for s(not) + s(word)."""

    score: Float[Tensor, "group"]
    right: Float[Tensor, "group"]
    additive_score: Float[Tensor, "group"]
    additive_right: Float[Tensor, "group"]


def negation_grid(
    positive: Float[Tensor, "positive"],
    not_positive: Float[Tensor, "not_positive"],
    negative: Float[Tensor, "negative"],
    not_negative: Float[Tensor, "not_negative"],
    negator: Float[Tensor, ""] | float,
) -> NegationGrid:
    """Four groups of scores: right means above zero for positive and negated negative words, below for the others.

    The additive baseline adds the negator's own score. A negator that leans negative makes an additive model look right
    on "not good" while "not bad" only gets worse: the fourth group tells them apart.

    >>> words = torch.tensor([1.0, 2.0])
    >>> negation_grid(words, -words, -words, -words - 0.5, negator=-0.5).right.tolist()
    [1.0, 1.0, 1.0, 0.0]
    """
    if positive.shape != not_positive.shape or negative.shape != not_negative.shape:
        raise BadInput(
            f"every word needs its negated phrase: {len(positive)} positive words with {len(not_positive)} phrases, "
            f"{len(negative)} negative words with {len(not_negative)}"
        )
    seen = [positive, not_positive, negative, not_negative]
    added = [positive, positive + negator, negative, negative + negator]
    wanted = [1, -1, -1, 1]
    return NegationGrid(
        torch.stack([group.mean() for group in seen]),
        torch.stack([(sign * group > 0).double().mean() for sign, group in zip(wanted, seen)]),
        torch.stack([group.mean() for group in added]),
        torch.stack([(sign * group > 0).double().mean() for sign, group in zip(wanted, added)]),
    )
