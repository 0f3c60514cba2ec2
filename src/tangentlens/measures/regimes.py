"""Coefficient learning, minimal feature, extended feature: a regime by declared thresholds, never by performance.

A network that has learned no function of its inputs, or has dead features, is in none of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

RegimeName = Literal["coefficient learning", "minimal feature", "extended feature", "undetermined"]


@dataclass(frozen=True)
class RegimeThresholds:
    """Where one regime ends and the next begins; no numeric rule is known from arXiv 2410.04264, so these are ours."""

    unmoved_similarity: float = 0.99
    minimal_utilisation: float = 0.95
    minimal_dimension: float = 1.2


DEFAULT_THRESHOLDS = RegimeThresholds()


@dataclass(frozen=True)
class Regime:
    """A regime and the comparisons that decided it, one sentence each, thresholds included."""

    name: RegimeName
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({'; '.join(self.reasons)})"


def regime(
    *, similarity: float | None, utilisation_at_expected: float, utilisation_dimension: float, expected_modes: int,
    thresholds: RegimeThresholds = DEFAULT_THRESHOLDS,
) -> Regime:  # fmt: skip
    """Which regime a network is in (the names of arXiv 2410.04264 v1; decided by use and movement of features only).

    `similarity` is S_init (None where the initial network is unknown, which rules coefficient learning out),
    `expected_modes` are as many as the minimum needs: the constant and each independent direction of the learned
    function, which makes C for C classes and 2 for one real output. `utilisation_at_expected` is Pi-hat there,
    `utilisation_dimension` the effective dimension of the utilisation. Where the constant is all there is (features or
    outputs that do not vary), it would be the one mode in use, and pass for a minimal feature: that is undetermined.
    """
    limit = thresholds.minimal_dimension * expected_modes
    reasons: list[str] = []
    if similarity is not None and math.isnan(similarity):
        reasons.append("S_init has no value, as features now or before training are constant")
    elif similarity is not None:
        unmoved = similarity >= thresholds.unmoved_similarity
        reasons.append(f"S_init {similarity:.3f} {'>=' if unmoved else '<'} {thresholds.unmoved_similarity:g}")
        if unmoved:
            return Regime("coefficient learning", tuple(reasons))
    if expected_modes < 2:
        reasons.append("features or outputs are constant over the examples, so that no function is learned of them")
        return Regime("undetermined", tuple(reasons))
    enough = utilisation_at_expected >= thresholds.minimal_utilisation
    narrow = utilisation_dimension <= limit
    reasons += [
        f"utilisation of the first {expected_modes} modes {utilisation_at_expected:.3f} "
        f"{'>=' if enough else '<'} {thresholds.minimal_utilisation:g}",
        f"effective dimension of the utilisation {utilisation_dimension:.2f} "
        f"{'<=' if narrow else '>'} {limit:g} = {thresholds.minimal_dimension:g} * {expected_modes}",
    ]
    return Regime("minimal feature" if enough and narrow else "extended feature", tuple(reasons))
