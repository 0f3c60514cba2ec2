"""What one run of another program may be held against: our own scatter over seeds, and over widths."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nextafter
from statistics import fmean, stdev

import torch

from tangentlens.studies.claims import Band

ANY, SHARE, INDEX = Band(), Band(0.0, 1.0), Band(-1.0, 1.0)
"""What a quantity can be at all: a score, a share of cases, an index or a correlation."""
WIDEST = 2.0


def one_more_seed(value: float, seen: Sequence[float], least: float, possible: Band = ANY) -> Band:
    """The claimed value of a single seed, give or take where one more of our seeds would fall in 95 of 100 cases.

    Student's prediction interval from the standard deviation over seeds, between `least` and twice `least`, and inside
    of what is possible. The independent run gives one seed and no spread, so a band narrower than this would judge its
    luck; one that our own scatter may widen without end would judge nothing.

    >>> str(one_more_seed(0.5, [0.1, 0.1, 0.1], 0.2)), str(one_more_seed(0.9, [0.0, 0.5, 1.0], 0.2, SHARE))
    ('0.3 .. 0.7', '0.5 .. 1')
    """
    reach = least
    if len(seen) > 1:
        from scipy.stats import t

        one_more = float(t.ppf(0.975, len(seen) - 1)) * stdev(seen) * (1 + 1 / len(seen)) ** 0.5
        reach = min(max(least, one_more), WIDEST * least)
    return Band(max(value - reach, possible.low), min(value + reach, possible.high))


def above_baseline(seen: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> Band:
    """More than two standard errors above a baseline on the same cases: rows are seeds, columns cases.

    What equals the baseline everywhere has no scatter, and is not above it.
    """
    gaps = [[mine - other for mine, other in zip(*rows)] for rows in zip(seen, baseline)]
    errors = [stdev(row) / len(row) ** 0.5 for row in gaps]
    reached = fmean(value for row in baseline for value in row) + 2 * max(errors)
    return Band(low=nextafter(reached, inf))


def exponent(widths: Sequence[int], values: Sequence[float]) -> float:
    """Least-squares slope of the log of a quantity against log width.

    >>> round(exponent([16, 64, 256], [8.0, 4.0, 2.0]), 6)
    -0.5
    """
    width, value = (torch.tensor([float(entry) for entry in row]).double().log() for row in (widths, values))
    across = width - width.mean()
    return float((across * (value - value.mean())).sum() / across.square().sum())
