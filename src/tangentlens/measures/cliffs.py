"""Where a spectrum falls: gaps too large for a smooth spectrum, and which of them training made.

A gap after mode i is log(lambda_i / lambda_{i+1}). What counts as large is read off the spectrum itself: each gap is
set against the gaps a smooth spectrum would show there (`smooth_spectrum`), by those near it and by all others. No
window, count or ratio is chosen by hand; only the error rate is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tangentlens.measures.smooth_spectrum import smooth_gaps


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
        return self.only_largest(count).positions.tolist()

    def only_largest(self, count: int) -> Cliffs:
        """The `count` largest cliffs, still in order of position."""
        chosen = torch.argsort(self.sizes, descending=True)[:count].sort().values
        initial_sizes = None if self.initial_sizes is None else self.initial_sizes[chosen]
        learned = None if self.learned is None else self.learned[chosen]
        return Cliffs(
            self.positions[chosen], self.sizes[chosen], self.null_sizes[chosen], self.chances[chosen],
            initial_sizes, learned,
        )  # fmt: skip


def log_gaps(eigenvalues: Float[Tensor, "mode"], *, floor: float | None = None) -> Float[Tensor, "gap"]:
    """log(lambda_i / lambda_{i+1}) for every pair above the floor, largest mode first.

    Below the floor (by default number of modes * machine precision * the largest eigenvalue) values are rounding, and
    their ratios mean nothing: the list ends with the last mode above it.
    """
    values = eigenvalues.to(torch.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"cliffs need at least two eigenvalues in one list, got shape {tuple(eigenvalues.shape)}")
    if not bool(torch.isfinite(values).all()):
        raise ValueError("cliffs need finite eigenvalues, got NaN or infinity; look for it in the kernel")
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
    """All gaps larger than a smooth spectrum would show, at a family-wise error rate.

    The gap least likely under the null of `smooth_spectrum` is a cliff when the chance of one like it anywhere is below
    the error rate; it then is an edge of the blocks beside it, and the rest is judged anew, until nothing stands out.
    Cost: n^2 for n modes, once per cliff.
    """
    if not 0 < error_rate < 1:
        raise ValueError(f"error_rate is a probability between 0 and 1, got {error_rate:g}; 0.01 is the default")
    gaps = log_gaps(eigenvalues, floor=floor)
    positions, null_sizes, chances = _found(gaps, error_rate)
    sizes = gaps[positions - 1]
    if initial is None:
        return Cliffs(positions, sizes, null_sizes, chances)
    before = log_gaps(initial, floor=floor)
    missing = torch.full_like(gaps, torch.nan)  # the initial spectrum may be shorter
    initial_sizes = torch.cat([before, missing])[positions - 1]
    there_before = torch.isin(positions, _found(before, error_rate)[0])
    learned = ~there_before & (sizes - initial_sizes.nan_to_num(0.0) > null_sizes)
    return Cliffs(positions, sizes, null_sizes, chances, initial_sizes, learned)


def _found(
    gaps: Float[Tensor, "gap"], error_rate: float
) -> tuple[Int[Tensor, "cliff"], Float[Tensor, "cliff"], Float[Tensor, "cliff"]]:
    """Positions, null sizes and chances of the cliffs, in order of position."""
    count = len(gaps)
    found: dict[int, tuple[float, float]] = {}
    while len(found) < count:
        smooth = smooth_gaps(gaps, list(found))
        chances = count * smooth.chances()
        chances[torch.tensor(list(found), dtype=torch.int64) - 1] = torch.inf
        least = int(chances.argmin())
        if float(chances[least]) >= error_rate:
            break
        found[least + 1] = (smooth.size_at(least, error_rate / count), float(chances[least]))
    positions = sorted(found)
    numbers = torch.tensor([found[position] for position in positions], dtype=gaps.dtype, device=gaps.device)
    null_sizes, chances = numbers.reshape(-1, 2).unbind(1)
    return torch.tensor(positions, dtype=torch.int64, device=gaps.device), null_sizes, chances


def blocks(cliff_positions: Int[Tensor, "cliff"] | list[int], modes: int) -> list[tuple[int, int]]:
    """The stretches of modes between cliffs as (first, end), end not included; the last one runs to the last mode.

    >>> blocks([1, 57, 113], 200)
    [(0, 1), (1, 57), (57, 113), (113, 200)]
    """
    inner = [int(position) for position in cliff_positions if 0 < int(position) < modes]
    edges = [0, *sorted(set(inner)), modes]
    return list(zip(edges[:-1], edges[1:]))
