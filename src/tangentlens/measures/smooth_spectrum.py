"""How large the gaps of a smooth spectrum are: the null that cliffs are judged by.

In a smooth bulk of modes the mean gap in log lambda falls off with the distance from either edge, as 1/u + 1/d for u
modes above the gap and d below it: a power law near the top, the hard edge of a Gram matrix near the bottom. The slope,
gap over (1/u + 1/d), is then locally constant. Edges are the ends of the spectrum and the cliffs already found. Gaps
scatter about their mean exponentially, as those of independent levels do: the widest tail of the usual level
statistics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

# the median of few neighbours is itself uncertain, and a gap must stand out against that too: with 16 it has to be
# about 21 mean gaps in a spectrum of 200 modes, with 8 it would have to be 48, against 10 if the mean were known
LEAST_NEIGHBOURS = 16
ROWS_AT_ONCE = 256  # of the table of distances between gaps


@dataclass(frozen=True, eq=False)
class SmoothGaps:
    """The median gap a smooth spectrum would show at each place, by two estimates that leave the gap itself out.

    `near` is from the slopes of `neighbours` gaps of the same block, within a factor of two of both distances to its
    edges (at least the nearest 16); `anywhere` from those of all gaps but the cliffs, one less than `gaps` has entries.
    Where modes are nearly degenerate only the second says what a small gap is.
    """

    gaps: Float[Tensor, "gap"]
    near: Float[Tensor, "gap"]
    neighbours: Int[Tensor, "gap"]
    anywhere: Float[Tensor, "gap"]
    others: Int[Tensor, "gap"]

    def chances(self) -> Float[Tensor, "gap"]:
        """P(a gap this large) for each gap alone; a gap has to stand out against both estimates."""
        near = chance_beyond(self.gaps / self.near, self.neighbours)
        return torch.maximum(near, chance_beyond(self.gaps / self.anywhere, self.others))

    def size_at(self, gap: int, chance: float) -> float:
        """The size that this gap exceeds with this chance."""
        return max(
            float(typical[gap]) * _multiple_at(chance, known[gap : gap + 1])
            for typical, known in ((self.near, self.neighbours), (self.anywhere, self.others))
        )


def smooth_gaps(gaps: Float[Tensor, "gap"], cliffs: list[int] | None = None) -> SmoothGaps:
    """The smooth gaps beside the gaps of a spectrum with these cliffs, which count as edges and not as neighbours."""
    count, found = len(gaps), sorted(cliffs or [])
    edges = [0, *found, count + 1]
    near, slopes, neighbours = torch.full_like(gaps, torch.nan), gaps.clone(), torch.zeros(count, dtype=torch.int64)
    stretch = torch.ones_like(gaps)
    for first, end in zip(edges[:-1], edges[1:]):
        inside = slice(first, end - 1)  # gap i lies after mode i + 1
        above = torch.arange(1, end - first, dtype=torch.float64, device=gaps.device)
        below = above.flip(0)
        stretch[inside] = torch.log1p(1 / above) + torch.log1p(1 / below)
        slopes[inside] = gaps[inside] / stretch[inside]
        near[inside], neighbours[inside] = _medians_nearby(slopes[inside], above.log(), below.log())
    kept = torch.ones(count, dtype=torch.bool, device=gaps.device)
    kept[torch.tensor(found, dtype=torch.int64) - 1] = False
    anywhere = torch.full_like(gaps, torch.nan)
    anywhere[kept] = _medians_of_others(slopes[kept])
    others = torch.full_like(neighbours, max(int(kept.sum()) - 1, 0))
    # exactly repeated eigenvalues give slopes of zero; rounding is the least a gap can mean anything against
    least = float(torch.finfo(torch.float64).eps) * max(count, 1)
    near, anywhere = ((each * stretch).clamp(min=least) for each in (near, anywhere))
    return SmoothGaps(gaps, near, neighbours.to(gaps.device), anywhere, others.to(gaps.device))


def _medians_nearby(
    slopes: Float[Tensor, "gap"], above: Float[Tensor, "gap"], below: Float[Tensor, "gap"]
) -> tuple[Float[Tensor, "gap"], Int[Tensor, "gap"]]:
    """The median slope of the gaps near each one within a block, and how many these are."""
    least = min(LEAST_NEIGHBOURS, len(slopes) - 1)
    medians, counts = torch.full_like(slopes, torch.nan), torch.zeros(len(slopes), dtype=torch.int64)
    for start in range(0, len(slopes) if least > 0 else 0, ROWS_AT_ONCE):
        rows = torch.arange(start, min(start + ROWS_AT_ONCE, len(slopes)))
        distance = torch.maximum((above - above[rows, None]).abs(), (below - below[rows, None]).abs())
        distance[torch.arange(len(rows)), rows] = torch.inf
        near = distance <= math.log(2.0)
        nearest = torch.zeros_like(near).scatter_(1, distance.topk(least, largest=False).indices, True)
        near = torch.where((near.sum(1) < least)[:, None], nearest, near)
        counts[rows] = near.sum(1).cpu()
        medians[rows] = torch.where(near, slopes, torch.nan).nanmedian(1).values
    return medians, counts


def _medians_of_others(slopes: Float[Tensor, "gap"]) -> Float[Tensor, "gap"]:
    """For each slope the (lower) median of all the others."""
    if len(slopes) < 2:
        return torch.full_like(slopes, torch.nan)
    ordered, order = slopes.sort()
    middle = (len(slopes) - 2) // 2
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    return torch.where(rank > middle, ordered[middle], ordered[middle + 1])


def chance_beyond(multiples: Float[Tensor, "gap"], neighbours: Int[Tensor, "gap"]) -> Float[Tensor, "gap"]:
    """P(e > s * median of k others) for exponential e and others: prod over i < (k + 1) // 2 of (k - i) / (k - i + s).

    The j-th smallest of k exponential variables is a sum of independent ones with rates k, k - 1, ..., k - j + 1, whose
    Laplace transform at s this is. For k -> infinity it is 2^-s, the exponential tail of a known median. Without any
    neighbour nothing is known, and the chance is 1.

    >>> chance_beyond(torch.tensor([1.0]), torch.tensor([1])).item()
    0.5
    """
    if len(multiples) == 0:
        return multiples
    rank = torch.arange(int((neighbours.max() + 1) // 2), device=multiples.device)
    rate = (neighbours[:, None] - rank).to(multiples)
    terms = torch.log1p(multiples.nan_to_num(0.0)[:, None] / rate.clamp(min=1.0))
    return torch.exp(-torch.where(rank < (neighbours[:, None] + 1) // 2, terms, 0.0).sum(1))


def _multiple_at(chance: float, neighbours: Int[Tensor, "1"]) -> float:
    """The multiple of the median that is exceeded with this chance, by bisection; infinite without neighbours."""
    if int(neighbours) == 0:
        return math.inf

    def beyond(multiple: float) -> float:
        return float(chance_beyond(torch.tensor([multiple], dtype=torch.float64), neighbours.cpu()))

    low, high = 0.0, 1.0
    while beyond(high) > chance:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > chance else (low, middle)
    return high
