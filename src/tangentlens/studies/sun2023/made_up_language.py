"""S5, a language whose every chance is known: what the first step learns, and which tests of a scorer can fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from tangentlens.kernels.infinite_width import token_counts
from tangentlens.measures.cooccurrence import context_counts
from tangentlens.measures.flow_agreement import correlation
from tangentlens.measures.kernel_flow import kernel_flow, kernel_time
from tangentlens.measures.matched_targets import (
    matched_targets,
    medians_apart,
    share_above,
    targets_by_pmi,
    targets_by_share,
)
from tangentlens.studies.claims import Band, Claim, Verdict, judged
from tangentlens.studies.sun2023.language_claims import control
from tangentlens.studies.sun2023.synthetic import markov_text

CONTEXTS, FREQUENT, CHOICES = 32, 20, 5
"""Scored words, words that may be targets, and targets on either side: of 40 kinds, the rarest are seen a few times."""


def mean_pooled(text: Int[Tensor, "example position"], kinds: int) -> tuple[Float[Tensor, "context token"], Tensor]:
    """All earlier words of each place, counted and divided by their number, and the word that stands there.

    Uniform attention over all earlier words is such a mixture of them.
    """
    places = [(row, end) for row in range(len(text)) for end in range(1, text.shape[1])]
    counts = token_counts([text[row, :end] for row, end in places], kinds).to_dense()
    return counts / counts.sum(1, keepdim=True), torch.stack([text[row, end] for row, end in places])


def first_step(seed: int, sequences: int = 100) -> float:
    """Correlation of the first step's scores with attention-weighted co-occurrence minus n_e / |V|.

    The model is linear in the mixture of earlier words, so the kernel between contexts is the overlap of mixtures.
    """
    text = markov_text(sequences=sequences, seed=seed)
    kinds = int(text.max()) + 1
    mixtures, targets = mean_pooled(text, kinds)
    kernel = mixtures @ mixtures.T
    # the kernel's leading directions suffice for so short a time
    flow = kernel_flow(kernel, targets, torch.tensor([1e-3 * kernel_time(kernel)]), labels=kinds, solver="split")
    scores = flow.scores(mixtures.T)[0]  # a word alone is the mixture of itself
    together = mixtures.T @ F.one_hot(targets, kinds).double()
    expected = together - mixtures.sum(0)[:, None] / kinds
    return correlation(scores.flatten(), expected.flatten())


@dataclass(frozen=True)
class ScoredPairs:
    """By scorer: the share of contexts that pass the notebook's test, and each context's share of pairs in order."""

    notebook: dict[str, float]
    association: dict[str, list[float]]
    matched: dict[str, list[float]]


def scored_pairs(seed: int, steps: int = 300) -> ScoredPairs:
    """Three ways of choosing pairs, for a trained model, its initial scores and a scorer of frequencies alone."""
    text = markov_text(seed=seed)
    kinds = int(text.max()) + 1
    mixtures, targets = mean_pooled(text, kinds)
    random = torch.Generator().manual_seed(seed)
    start = 0.1 * torch.randn(kinds, kinds, generator=random, dtype=torch.float64)
    weights = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(mixtures @ weights, targets).backward()
        optimiser.step()
    frequency = torch.bincount(text.flatten(), minlength=kinds).double()
    chosen = frequency.argsort(descending=True)[:CONTEXTS]
    counts = context_counts(text.flatten(), kinds, text.shape[1])
    enough = float(counts.sum(0).sort(descending=True).values[FREQUENT - 1])
    answers = {
        "trained": weights.detach()[chosen],
        "untrained": start[chosen],
        "unigram": torch.log(frequency + 0.5).expand(CONTEXTS, -1),
    }
    by_share = targets_by_share(counts, chosen)
    by_pmi = targets_by_pmi(counts, chosen, CHOICES, minimum=enough)
    matched = matched_targets(counts, chosen, CHOICES, minimum=enough)
    return ScoredPairs(
        {name: float(medians_apart(s, by_share)) for name, s in answers.items()},
        {name: share_above(s, by_pmi).tolist() for name, s in answers.items()},
        {name: share_above(s, matched).tolist() for name, s in answers.items()},
    )


def made_up_verdicts(seeds: Sequence[int]) -> list[Verdict]:
    """What the first step learns, that the notebook's test cannot fail, and that its controls can."""
    first = Claim(
        "S5", "At uniform probabilities the first step makes scores proportional to attention-weighted co-occurrence "
        "minus n_e / |V|: correlation", "derived here", 1.0, "independent run", Band(low=0.999), every_seed=True,
    )  # fmt: skip
    found = [scored_pairs(seed) for seed in seeds]
    boxes = Claim(
        "S5.notebook", "made-up language: a unigram-only scorer passes the notebook's test, which so tests nothing",
        "independent run on a made-up language", "32 of 32", "independent run", Band(low=1.0),
    )  # fmt: skip
    untrained, trained = (fmean(run.notebook[scorer] for run in found) for scorer in ("untrained", "trained"))
    return [
        judged(first, [first_step(seed) for seed in seeds]),
        judged(boxes, [run.notebook["unigram"] for run in found], baseline=untrained,
               note=f"baseline: untrained scores; trained {trained:.3f}"),
        control("S5.PMI", "made-up language: targets by PMI among the commoner half of its words",
                [run.association for run in found]),
        control("S5.matched", "made-up language: high against low PMI at equal frequency",
                [run.matched for run in found]),
    ]  # fmt: skip
