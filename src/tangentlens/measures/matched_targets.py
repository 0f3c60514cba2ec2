"""Which next words to compare after a context word: the notebook's choice, and one that word frequency cannot win."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.errors import BadInput
from tangentlens.measures.cooccurrence import pmi


@dataclass(frozen=True)
class Targets:
    """For each context word, next words that should score high and next words that should score low."""

    contexts: Int[Tensor, "context"]
    high: Int[Tensor, "context choice"]
    low: Int[Tensor, "context choice"]


def targets_by_share(
    counts: Float[Tensor, "token other_token"], contexts: Int[Tensor, "context"], choices: int = 10
) -> Targets:
    """Highest and lowest co-occurrence, as in the authors' notebook.

    The high ones are words frequent everywhere and the low ones arbitrary zeros, so a scorer that ignores the context
    passes too: it is no test, and stands here to show that.
    """
    ranked = counts[contexts].argsort(dim=1, descending=True, stable=True)
    return Targets(contexts, ranked[:, :choices], ranked[:, -choices:])


def targets_by_pmi(
    counts: Float[Tensor, "token other_token"], contexts: Int[Tensor, "context"], choices: int = 10, minimum: float = 20
) -> Targets:
    """Highest and lowest pointwise mutual information among targets seen at least `minimum` times."""
    frequent = torch.nonzero(counts.sum(0) >= minimum).flatten()
    if len(frequent) < 2 * choices:
        raise BadInput(f"{len(frequent)} targets occur {minimum:g} times; {2 * choices} are needed: lower minimum=")
    association = pmi(counts, smoothing=0.5)[contexts][:, frequent]
    ranked = frequent[association.argsort(dim=1, descending=True, stable=True)]
    return Targets(contexts, ranked[:, :choices], ranked[:, -choices:])


def matched_targets(
    counts: Float[Tensor, "token other_token"], contexts: Int[Tensor, "context"], choices: int = 10, minimum: float = 20
) -> Targets:
    """High PMI against low PMI at equal frequency: neighbours in the frequency ranking, the better associated one high.

    The pairs of one context are taken alternately with the higher and the lower frequency on the high side, as far as
    there are such pairs, so that a scorer that knows frequencies alone is at one half.
    """
    total = counts.sum(0)
    by_frequency = total.argsort(descending=True, stable=True)
    by_frequency = by_frequency[total[by_frequency] >= minimum]
    pairs = by_frequency[: len(by_frequency) // 2 * 2].reshape(-1, 2)
    if len(pairs) < choices:
        raise BadInput(f"{len(pairs)} pairs of targets occur {minimum:g} times; {choices} are needed: lower minimum=")
    association = pmi(counts, smoothing=0.5)[contexts]
    gap = association[:, pairs[:, 0]] - association[:, pairs[:, 1]]
    high, low = [], []
    for row in gap:
        commoner = _strongest(row, choices - choices // 2)
        rarer = _strongest(-row, choices // 2)
        high.append(torch.cat([pairs[commoner, 0], pairs[rarer, 1]]))
        low.append(torch.cat([pairs[commoner, 1], pairs[rarer, 0]]))
    return Targets(contexts, torch.stack(high), torch.stack(low))


def _strongest(gap: Float[Tensor, "pair"], choices: int) -> Int[Tensor, "choice"]:
    return gap.topk(choices).indices


def share_above(scores: Float[Tensor, "context token"], targets: Targets) -> Float[Tensor, "context"]:
    """For each context, how often a high target outscores the low target of the same pair; chance is one half.

    `scores[i]` are the next-word scores after context i.
    """
    return (scores.gather(1, targets.high) > scores.gather(1, targets.low)).double().mean(1)


def medians_apart(scores: Float[Tensor, "context token"], targets: Targets) -> Float[Tensor, ""]:
    """Share of contexts whose high targets have the higher median score: what the notebook's box plots show."""
    high, low = scores.gather(1, targets.high), scores.gather(1, targets.low)
    return (high.median(1).values > low.median(1).values).double().mean()
