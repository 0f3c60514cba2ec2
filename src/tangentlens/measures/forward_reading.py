"""Everything the forward features of one network say, from one set of moments, with the levels to read it against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from tangentlens.measures.collapse import collapse
from tangentlens.measures.effective_dimension import effective_dimension
from tangentlens.measures.eigenfunctions import eigenfunctions, relative_eigenvalues
from tangentlens.measures.feature_change import initial_similarity
from tangentlens.measures.forward_moments import ForwardMoments, merged
from tangentlens.measures.jackknife import Interval, jackknife
from tangentlens.measures.quality import Normalisation, chance_quality, cumulative, quality, utilisation
from tangentlens.measures.regimes import DEFAULT_THRESHOLDS, Regime, RegimeThresholds, regime
from tangentlens.measures.richness import CONVENTIONS, Convention, Richness, one_hot_targets, richness
from tangentlens.measures.richness_reference import (
    convention_caution,
    imbalance_caution,
    isotropic_level,
    random_head_levels,
    sample_caution,
)


@dataclass(frozen=True)
class ForwardReading:
    """The three panels (curves over modes), the numbers that sum them up, their reference levels, and cautions.

    `interval`, `random_head` and `initial` (the D_LR before training, where it is known) belong to `paper`, the literal
    reading; `random_head_robust` to `robust`. The isotropic level is that of both. Where targets are one-hot, the
    utilisation and the regime are those of what a classifier uses: outputs without their mean over classes, and the
    constant. Values without their ingredient (targets, initial features, groups for the interval) are None.
    """

    rows: int
    units: int
    outputs: int
    expected_modes: int
    normalisation: Normalisation
    paper: Richness
    robust: Richness
    interval: Interval | None
    isotropic: float
    random_head: float
    random_head_robust: float
    initial: float | None
    similarity: float | None
    collapse: float | None
    relative_eigenvalues: Float64[Tensor, "mode"]
    cumulative_quality: Float64[Tensor, "mode"] | None
    cumulative_utilisation: Float64[Tensor, "mode"]
    chance_quality: float
    eigenvalue_dimension: float
    quality_dimension: float | None
    utilisation_dimension: float
    regime: Regime
    cautions: tuple[str, ...]


def forward_reading(
    moments: ForwardMoments | Sequence[ForwardMoments],
    *,
    initial: float | None = None,
    normalisation: Normalisation = "subspace",
    tolerance: float | None = None,
    thresholds: RegimeThresholds = DEFAULT_THRESHOLDS,
) -> ForwardReading:
    """All forward-feature measures of arXiv 2410.04264 at once; a list of moments (disjoint groups) adds an interval.

    `tolerance` is the share of the largest below which a direction of the outputs counts as none in the robust reading.
    Cost: a few times units^3.
    """
    groups = () if isinstance(moments, ForwardMoments) else tuple(moments)
    every = moments if isinstance(moments, ForwardMoments) else merged(groups)
    paper, robust = richness(every, "paper"), richness(every, "robust", tolerance=tolerance)
    modes = eigenfunctions(every)
    has_targets = every.width("targets") > 0
    classes = has_targets and one_hot_targets(every)
    of: Convention = "robust" if classes else "paper"
    used = utilisation(every, modes, normalisation=normalisation, convention=of, tolerance=tolerance)
    share = quality(every, modes, normalisation=normalisation) if has_targets else None
    similarity = initial_similarity(every) if every.width("initial") else None
    outputs, units = every.width("outputs"), every.width("features")
    # the constant, and every independent direction of the learned function
    expected = robust.rank + 1
    used_dimension = float(effective_dimension(used))
    rank = max(robust.rank, 1)
    heads = {name: float(random_head_levels(every, outputs=rank, convention=name).mean())
             for name in CONVENTIONS}  # fmt: skip
    return ForwardReading(
        rows=every.rows,
        units=units,
        outputs=outputs,
        expected_modes=expected,
        normalisation=normalisation,
        paper=paper,
        robust=robust,
        interval=jackknife(groups, lambda part: richness(part, "paper").distance) if len(groups) > 1 else None,
        isotropic=isotropic_level(rank, units),
        random_head=heads["paper"],
        random_head_robust=heads["robust"],
        initial=initial,
        similarity=similarity,
        collapse=collapse(every) if classes else None,
        relative_eigenvalues=relative_eigenvalues(modes.eigenvalues),
        cumulative_quality=None if share is None else cumulative(share),
        cumulative_utilisation=cumulative(used),
        chance_quality=chance_quality(every.rows, len(modes.eigenvalues)),
        eigenvalue_dimension=float(effective_dimension(modes.eigenvalues)),
        quality_dimension=None if share is None else float(effective_dimension(share)),
        utilisation_dimension=used_dimension,
        regime=regime(
            similarity=similarity,
            utilisation_at_expected=float(used[:expected].sum()),
            utilisation_dimension=used_dimension,
            expected_modes=expected,
            thresholds=thresholds,
        ),
        cautions=_cautions(every, paper, robust, classes),
    )


def _cautions(moments: ForwardMoments, paper: Richness, robust: Richness, classes: bool) -> tuple[str, ...]:
    found = [sample_caution(moments.rows, moments.width("features")), convention_caution(paper, robust)]
    if classes:
        counts = moments.total("one", "targets")[0]
        found.append(imbalance_caution(counts[torch.nonzero(counts).squeeze(1)]))
    return tuple(caution for caution in found if caution is not None)
