"""Where a spectrum falls: gaps too large for a smooth spectrum, and which of them training made.

A gap after mode i is log(lambda_i / lambda_{i+1}). What counts as large is read off the spectrum itself: on the scale
of log index a power law has a constant slope, so each gap's slope is set against the slopes at nearby indices, nearby
meaning within a factor of two. No window, count or ratio is chosen by hand; only the error rate is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LEAST_NEIGHBOURS = 8


@dataclass(frozen=True, eq=False)
class Cliffs:
    """Gaps of a spectrum that the smooth null rejects, in order of position.

    `positions` counts the modes above each cliff: a cliff at 57 lies between the 57th and the 58th mode. `sizes` are
    log ratios across it, `null_sizes` the largest a smooth spectrum would show there at the error rate asked for,
    `chances` the probability under that null that any gap of the spectrum is this large. `initial_sizes` are the gaps
    of the initial network at the same positions, and `learned` marks cliffs where the initial network has none by the
    same rule, and which stay cliffs when its gap there is taken off: the others come with the inputs and the
    architecture. Both are None without an initial spectrum.
    """

    positions: Int[Tensor, "cliff"]
    sizes: Float[Tensor, "cliff"]
    null_sizes: Float[Tensor, "cliff"]
    chances: Float[Tensor, "cliff"]
    initial_sizes: Float[Tensor, "cliff"] | None = None
    learned: Bool[Tensor, "cliff"] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def largest(self, count: int) -> list[int]:
        """The positions of the `count` largest cliffs, in order of position."""
        chosen = torch.argsort(self.sizes, descending=True)[:count]
        return sorted(self.positions[chosen].tolist())


def log_gaps(eigenvalues: Float[Tensor, "mode"], *, floor: float | None = None) -> Float[Tensor, "gap"]:
    """log(lambda_i / lambda_{i+1}) for every pair above the floor, largest mode first.

    Below the floor (by default number of modes * machine precision * the largest eigenvalue) values are rounding, and
    their ratios mean nothing: the list ends with the last mode above it.
    """
    values = eigenvalues.to(torch.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"cliffs need at least two eigenvalues in one list, got shape {tuple(eigenvalues.shape)}")
    if bool((values.diff() > 0).any()):
        raise ValueError("cliffs need eigenvalues sorted from the largest down; `spectrum` returns them so")
    if floor is None:
        floor = len(values) * float(torch.finfo(eigenvalues.dtype).eps) * float(values[0])
    kept = values[values > max(floor, 0.0)]
    return -kept.log().diff()


def largest_gaps(eigenvalues: Float[Tensor, "mode"], count: int, *, floor: float | None = None) -> list[int]:
    """Positions of the `count` largest gaps by size alone, in order; a ranking, not a test: every spectrum has some.

    >>> largest_gaps(torch.tensor([9.0, 8.0, 2.0, 1.9, 0.3, 0.2]), 2)
    [2, 4]
    """
    gaps = log_gaps(eigenvalues, floor=floor)
    return sorted((torch.argsort(gaps, descending=True)[:count] + 1).tolist())


def cliffs(
    eigenvalues: Float[Tensor, "mode"],
    initial: Float[Tensor, "initial_mode"] | None = None,
    *,
    error_rate: float = 0.01,
    floor: float | None = None,
) -> Cliffs:
    """All gaps larger than a smooth spectrum of the same local slope would show, at a family-wise error rate.

    Null: gap_i = e_i * m_i with e_i exponential of mean one (independent levels in log lambda, the widest-tailed of the
    usual level statistics) and m_i the mean gap at that index, from the median slope of the neighbours.
    """
    gaps, expected, chances = _gaps_under_null(eigenvalues, floor)
    found = torch.nonzero(chances < error_rate).flatten()
    null_sizes = expected[found] * math.log(max(len(gaps), 1) / error_rate)
    if initial is None:
        return Cliffs(found + 1, gaps[found], null_sizes, chances[found])
    before, _, chances_before = _gaps_under_null(initial, floor)
    missing = torch.full_like(gaps, torch.nan)  # the initial spectrum may be shorter
    initial_sizes = torch.cat([before, missing])[found]
    there_before = torch.cat([chances_before, missing])[found] < error_rate
    learned = ~there_before & (gaps[found] - initial_sizes.nan_to_num(0.0) > null_sizes)
    return Cliffs(found + 1, gaps[found], null_sizes, chances[found], initial_sizes, learned)


def _gaps_under_null(
    eigenvalues: Float[Tensor, "mode"], floor: float | None
) -> tuple[Float[Tensor, "gap"], Float[Tensor, "gap"], Float[Tensor, "gap"]]:
    """The gaps, those a smooth spectrum would have on average, and the chance that it has one as large anywhere."""
    gaps = log_gaps(eigenvalues, floor=floor)
    expected = smooth_gaps(gaps)
    return gaps, expected, (max(len(gaps), 1) * torch.exp(-gaps / expected)).clamp(max=1.0)


def smooth_gaps(gaps: Float[Tensor, "gap"]) -> Float[Tensor, "gap"]:
    """The mean gap a smooth spectrum would have at each index, from the gaps at neighbouring indices, itself left out.

    The median slope d log lambda / d log index over the indices within a factor of two (at least the nearest 8),
    divided by log 2, the median of an exponential variable of mean one. Indices are also counted from the last mode,
    since levels thin out towards the lower edge of a bulk as they do towards the upper one.
    """
    count = len(gaps)
    index = torch.arange(1, count + 1, dtype=torch.float64, device=gaps.device)
    stretch = torch.log((index + 1) / index)
    slopes = gaps / stretch
    from_top, from_bottom = index.log(), index.flip(0).log()
    expected = torch.full_like(gaps, float("nan"))
    for i in range(count):
        distance = torch.maximum((from_top - from_top[i]).abs(), (from_bottom - from_bottom[i]).abs())
        distance[i] = torch.inf
        near = distance <= math.log(2.0)
        if int(near.sum()) < LEAST_NEIGHBOURS:
            near = torch.zeros_like(near)
            near[torch.argsort(distance)[: min(LEAST_NEIGHBOURS, count - 1)]] = True
        expected[i] = slopes[near].median() / math.log(2.0) * stretch[i] if near.any() else torch.nan
    # exactly repeated eigenvalues give slopes of zero; rounding is the least a gap can mean anything against
    return expected.clamp(min=float(torch.finfo(torch.float64).eps) * max(count, 1))


def blocks(cliff_positions: Int[Tensor, "cliff"] | list[int], modes: int) -> list[tuple[int, int]]:
    """The stretches of modes between cliffs as (first, end), end not included; the last one runs to the last mode.

    >>> blocks([1, 57, 113], 200)
    [(0, 1), (1, 57), (57, 113), (113, 200)]
    """
    inner = [int(position) for position in cliff_positions if 0 < int(position) < modes]
    edges = [0, *sorted(set(inner)), modes]
    return list(zip(edges[:-1], edges[1:]))
