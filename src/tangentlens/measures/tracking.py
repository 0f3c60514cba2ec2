"""Blocks of modes along training: the overlap of a window over steps, the onset it is compared with, and changes in
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.cliffs import Cliffs
from tangentlens.measures.overlaps import orthonormal_span


def shared_percent(first: Float[Tensor, "row mode"], second: Float[Tensor, "row other_mode"]) -> float:
    """The share of the smaller of two spans that lies in the other, in per cent; 100 when one contains the other."""
    left, right = orthonormal_span(first), orthonormal_span(second)
    return 100 * float((left.T @ right).square().sum()) / max(1, min(left.shape[1], right.shape[1]))


def followed_blocks(
    modes: Sequence[Float[Tensor, "row mode"]], block: tuple[int, int], *, reach: int | None = None
) -> list[tuple[int, int]]:
    """The block's place at every checkpoint, followed backwards from the last one by its content, not by its index.

    At each earlier checkpoint it is the window of the same width that shares most with the block at the next one,
    wherever it lies in the first `reach` modes (all by default). Returns (first, end) per checkpoint.
    """
    first, end = block
    width = end - first
    if not 0 <= first < end <= modes[-1].shape[1]:
        raise ValueError(f"the last checkpoint has {modes[-1].shape[1]} modes, got a block {block}")
    fewest = min(min(each.shape[1], reach or each.shape[1]) for each in modes)
    if fewest < width:
        raise ValueError(
            f"a block of {width} modes is looked for among as many at least, got {fewest} at a checkpoint; "
            "keep more modes there, or raise reach="
        )
    places = [block]
    for later, earlier in zip(modes[::-1][:-1], modes[::-1][1:]):
        start, _ = places[-1]
        span = orthonormal_span(later[:, start : start + width])
        limit = min(earlier.shape[1], reach or earlier.shape[1])
        captured = (span.T @ earlier[:, :limit].to(span)).square().sum(0)
        windows = captured.unfold(0, width, 1).sum(1)
        best = int(windows.argmax())
        places.append((best, best + width))
    return places[::-1]


def rate_of_change(steps: Sequence[float], series: Sequence[float]) -> Float[Tensor, "step"]:
    """d series / d step: central differences, one-sided at the ends, for any spacing of the steps."""
    if len(steps) != len(series) or len(steps) < 2:
        raise ValueError(f"a rate needs at least two steps and one value each, got {len(steps)} and {len(series)}")
    (rate,) = torch.gradient(
        torch.as_tensor(series, dtype=torch.float64), spacing=(torch.as_tensor(steps, dtype=torch.float64),)
    )
    return rate


def onset(steps: Sequence[float], accuracy: Sequence[float], threshold: float) -> float | None:
    """The declared rule: the first recorded step at which accuracy is at least the threshold; None if it never is."""
    return next((step for step, value in zip(steps, accuracy) if value >= threshold), None)


@dataclass(frozen=True)
class Lag:
    """How far a peak lies from the onset, in steps (negative: before it), on a grid whose spacing bounds what it
    means."""

    peak: float
    onset: float | None
    lag: float | None
    grid: float


def lag_of_peak(steps: Sequence[float], series: Sequence[float], accuracy: Sequence[float], *, threshold: float) -> Lag:
    """The step where a series rises fastest beside the onset of accuracy: a retrospective reading, it needs the whole
    run."""
    rate = rate_of_change(steps, series)
    if not bool(torch.isfinite(rate).all()):
        where = steps[int((~torch.isfinite(rate)).nonzero()[0])]
        raise ValueError(f"a peak needs finite values, got one that is not near step {where}; leave it out")
    peak = float(steps[int(rate.argmax())])
    start = onset(steps, accuracy, threshold)
    grid = max(later - earlier for earlier, later in zip(steps[:-1], steps[1:]))
    return Lag(peak, start, None if start is None else peak - start, grid)


def first_learned_cliff(steps: Sequence[float], found: Sequence[Cliffs], *, hold: int = 2) -> float | None:
    """The step at which a cliff the initial network lacks has been there for `hold` records in a row; None if never.

    After the same mode in each of them: chance cliffs come at a new place every time. Needs neither labels nor later
    checkpoints: each entry of `found` is judged against the initial spectrum alone, so pass the results of
    `cliffs(now, initial)`.
    """
    held: dict[int, int] = {}  # for each learned cliff of the last record, how many in a row have had it
    for step, here in zip(steps, found):
        if here.learned is None:
            raise ValueError("a learned cliff needs the initial spectrum; pass it to cliffs(eigenvalues, initial)")
        held = {position: held.get(position, 0) + 1 for position in here.positions[here.learned].tolist()}
        if max(held.values(), default=0) >= hold:
            return step
    return None


@dataclass(frozen=True)
class ChangePoint:
    """A change in a series' rate: the step it was noticed at, the step it is dated to, and the chance of a false
    alarm."""

    noticed: float
    dated: float
    chance: float


def change_points(
    steps: Sequence[float], series: Sequence[float], *, false_alarms: float = 0.01, least: int = 3
) -> list[ChangePoint]:
    """Steps at which a series' increments change their mean, judged at each step from the past alone, without labels.

    At every step all splits of the increments seen so far into before and after (at least `least` each) are compared
    by a two-sample t test. The j-th step with a test may spend false_alarms / (j (j + 1)), which sums to at most
    `false_alarms` however long the series becomes: an alarm is raised when the smallest p value times the number of
    splits is below that, and the past is then forgotten. `chance` is what the alarm is compared by, times j (j + 1).
    Valid for independent normal increments: smooth drifts, which every training curve has, break that, so read an alarm
    as "the rate is no longer what it was".
    """
    if len(steps) != len(series):
        raise ValueError(f"a series needs one value per step, got {len(steps)} steps and {len(series)} values")
    values = torch.as_tensor(series, dtype=torch.float64)
    if not bool(torch.isfinite(values).all()):
        where = steps[int((~torch.isfinite(values)).nonzero()[0])]
        raise ValueError(f"change points need finite values, got one that is not at step {where}; leave it out")
    increments = values.diff()
    found, begin = [], 0
    for now in range(2 * least, len(increments) + 1):
        seen = increments[begin:now]
        if len(seen) < 2 * least:
            continue
        chances = _split_chances(seen, least)
        j = now - 2 * least + 1
        smallest = float(chances.min()) * len(chances) * j * (j + 1)
        if smallest < false_alarms:
            split = begin + least + int(chances.argmin())
            found.append(ChangePoint(float(steps[now]), float(steps[split]), smallest))
            begin = now
    return found


def _split_chances(increments: Float[Tensor, "increment"], least: int) -> Float[Tensor, "split"]:
    """p values of the t tests between the increments before and after each split that leaves `least` on both sides."""
    from scipy.stats import t

    count = len(increments)
    before = torch.arange(least, count - least + 1, dtype=torch.float64)
    after = count - before
    sums, squares = increments.cumsum(0), increments.square().cumsum(0)
    left, left_squares = sums[least - 1 : count - least], squares[least - 1 : count - least]
    within = (left_squares - left**2 / before) + (squares[-1] - left_squares - (sums[-1] - left) ** 2 / after)
    pooled = (within.clamp(min=0) / (count - 2)).sqrt()
    floor = 1e-12 * increments.abs().max()  # a constant series has rounding for a spread
    distance = (left / before - (sums[-1] - left) / after).abs() / (pooled + floor) / (1 / before + 1 / after).sqrt()
    return torch.as_tensor(2 * t.sf(distance.nan_to_num(0.0).numpy(), count - 2))
