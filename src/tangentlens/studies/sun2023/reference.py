"""What one run of another program may be held against: our own scatter over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nextafter
from statistics import fmean, stdev

from tangentlens.studies.claims import Band, around


def one_more_seed(value: float, seen: Sequence[float], least: float) -> Band:
    """The claimed value of a single seed, give or take where one more of our seeds would fall in 95 of 100 cases.

    Student's prediction interval from the standard deviation over seeds; never narrower than `least`. The independent
    run gives one seed and no spread, so a band narrower than this would judge its luck.

    >>> str(one_more_seed(0.5, [0.1, 0.1, 0.1], 0.2))
    '0.3 .. 0.7'
    """
    if len(seen) < 2:
        return around(value, least)
    from scipy.stats import t

    reach = float(t.ppf(0.975, len(seen) - 1)) * stdev(seen) * (1 + 1 / len(seen)) ** 0.5
    return around(value, max(least, reach))


def above_baseline(seen: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> Band:
    """More than two standard errors above a baseline on the same cases: rows are seeds, columns cases.

    What equals the baseline everywhere has no scatter, and is not above it.
    """
    gaps = [[mine - other for mine, other in zip(*rows)] for rows in zip(seen, baseline)]
    errors = [stdev(row) / len(row) ** 0.5 for row in gaps]
    reached = fmean(value for row in baseline for value in row) + 2 * max(errors)
    return Band(low=nextafter(reached, inf))
