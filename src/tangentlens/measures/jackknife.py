"""Error bars and bias removal from moments of disjoint groups of examples, without storing a feature."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tangentlens.measures.forward_moments import ForwardMoments, merged


@dataclass(frozen=True)
class Interval:
    """A value with its error: `corrected` has the bias of order 1/n removed, low and high are 95 % about it.

    By Student's t at groups - 1 degrees of freedom: the error itself is estimated from as few values as there are
    groups.
    """

    value: float
    corrected: float
    standard_error: float
    groups: int

    @property
    def half_width(self) -> float:
        from scipy.stats import t

        return float(t.ppf(0.975, self.groups - 1)) * self.standard_error

    @property
    def low(self) -> float:
        return self.corrected - self.half_width

    @property
    def high(self) -> float:
        return self.corrected + self.half_width


def jackknife(groups: Sequence[ForwardMoments], statistic: Callable[[ForwardMoments], float]) -> Interval:
    """Leave out one group of examples at a time: theta_J = G theta - (G - 1) mean(theta without a group).

    Groups must be disjoint, of nearly equal size and alike (deal the examples out, do not cut them by class). D_LR has
    a bias of order 1/n that exceeds its spread at few examples per unit; a bootstrap would double it, not remove it.
    """
    if len(groups) < 2:
        raise ValueError(f"a jackknife needs at least 2 groups of examples, got {len(groups)}")
    every = merged(groups)
    value = statistic(every)
    without = [statistic(every - group) for group in groups]
    count, mean = len(groups), math.fsum(without) / len(groups)
    spread = math.fsum((left - mean) ** 2 for left in without)
    return Interval(value, count * value - (count - 1) * mean, math.sqrt((count - 1) / count * spread), count)
