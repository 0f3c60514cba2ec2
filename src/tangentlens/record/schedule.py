"""When to record: small values that say which training steps are due, written down in the run as words."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

POINTS = 50
"""Recorded steps of the default schedule."""
HORIZON = 10_000
"""Steps over which an open-ended log-spaced schedule spreads its points; it goes on at the same density."""


@dataclass(frozen=True)
class Moment:
    """What is known when a step is shown: its scalars, those of the step shown before, and those recorded last.

    `previous` is the step shown before, -1 at the start of a run: a loop that shows every hundredth step passes over
    most planned ones, and the first step it shows after one stands in for it.
    """

    step: int
    scalars: Mapping[str, float]
    before: Mapping[str, float]
    recorded: Mapping[str, float]
    previous: int = -1


@runtime_checkable  # the tests check types as they run
class Schedule(Protocol):
    """Which steps are recorded. `planned` are those known beforehand; `needs_scalars` says that values decide."""

    @property
    def planned(self) -> tuple[int, ...]: ...

    @property
    def needs_scalars(self) -> bool: ...

    def due(self, moment: Moment) -> bool: ...


@dataclass(frozen=True)
class Every:
    """Every `period` steps from `start` on."""

    period: int
    start: int = 0
    planned: tuple[int, ...] = ()
    needs_scalars: bool = False

    def due(self, moment: Moment) -> bool:
        latest = moment.step - (moment.step - self.start) % self.period
        return latest >= self.start and latest > moment.previous

    def __str__(self) -> str:
        return "every step" if self.period == 1 else f"every {self.period} steps from {self.start}"


@dataclass(frozen=True)
class At:
    """At the steps named, in order, and no other."""

    planned: tuple[int, ...]
    name: str = ""
    needs_scalars: bool = False

    def due(self, moment: Moment) -> bool:
        return bisect_right(self.planned, moment.step) > bisect_right(self.planned, moment.previous)

    def __str__(self) -> str:
        return self.name or f"at {len(self.planned)} named steps"


@dataclass(frozen=True)
class Geometric:
    """Step 0 and powers of a ratio, `density` to a decade, without an end."""

    density: float
    planned: tuple[int, ...] = ()
    needs_scalars: bool = False

    def due(self, moment: Moment) -> bool:
        return self._latest(moment.step) > moment.previous

    def _latest(self, step: int) -> int:
        """The last of the steps meant that is not beyond this one."""
        if step < 2:
            return step
        near = round(self.density * math.log10(step))
        around = (round(10 ** (power / self.density)) for power in (near - 1, near, near + 1))
        return max(point for point in (1, *around) if point <= step)

    def __str__(self) -> str:
        return f"log-spaced, {self.density:.3g} to a decade"


@dataclass(frozen=True)
class Crossing:
    """When a scalar passes a level: a state of the scalars before and now, so that it survives a restart."""

    scalar: str
    level: float
    rising: bool
    planned: tuple[int, ...] = ()
    needs_scalars: bool = True

    def due(self, moment: Moment) -> bool:
        now, before = moment.scalars.get(self.scalar), moment.before.get(self.scalar)
        if now is None or before is None:
            return False
        return before < self.level <= now if self.rising else before > self.level >= now

    def __str__(self) -> str:
        return f"when {self.scalar} {'rises above' if self.rising else 'falls below'} {self.level:g}"


@dataclass(frozen=True)
class Changed:
    """When a scalar differs from its recorded value by a share of it."""

    scalar: str
    share: float
    planned: tuple[int, ...] = ()
    needs_scalars: bool = True

    def due(self, moment: Moment) -> bool:
        now, recorded = moment.scalars.get(self.scalar), moment.recorded.get(self.scalar)
        if now is None:
            return False
        return recorded is None or abs(now - recorded) > self.share * abs(recorded)

    def __str__(self) -> str:
        return f"when {self.scalar} has changed by {self.share:.0%}"


@dataclass(frozen=True)
class Either:
    """Whatever any of its schedules finds due."""

    schedules: tuple[Schedule, ...]

    @property
    def planned(self) -> tuple[int, ...]:
        return tuple(sorted({step for schedule in self.schedules for step in schedule.planned}))

    @property
    def needs_scalars(self) -> bool:
        return any(schedule.needs_scalars for schedule in self.schedules)

    def due(self, moment: Moment) -> bool:
        return any(schedule.due(moment) for schedule in self.schedules)

    def __str__(self) -> str:
        return "; ".join(map(str, self.schedules))


def every(period: int, start: int = 0) -> Schedule:
    """Record every so many steps."""
    if period != int(period) or period < 1 or start != int(start) or start < 0:
        raise ValueError(f"a period is at least 1 whole step, got {period} from {start}; every(1) records each step")
    return Every(int(period), int(start))


def at(*steps: int) -> Schedule:
    """Record at the steps given."""
    if not steps or any(step != int(step) or step < 0 for step in steps):
        raise ValueError(f"at() takes steps from 0 on, got {steps}; as in at(0, 10, 100)")
    return At(tuple(sorted({int(step) for step in steps})))


def log_spaced(points: int = POINTS, last: int | None = None) -> Schedule:
    """Record step 0 and then ever more rarely: exactly `points` steps up to `last`, or on and on without one.

    >>> log_spaced(6, last=100).planned
    (0, 1, 3, 10, 32, 100)
    """
    if points < 2 or (last is not None and last < 1):
        raise ValueError(f"expected at least 2 points and a last step from 1 on, got {points} and {last}")
    if last is None:
        return Geometric((points - 2) / math.log10(HORIZON) if points > 2 else 1.0)
    wanted = min(points - 1, last)
    grid = wanted
    # rounding merges the first points: take a finer grid until enough distinct steps are left
    while len(steps := _rounded(grid, last)) < wanted:
        grid += 1
    return At((0, *steps), f"{len(steps) + 1} log-spaced steps to {last}")


def _rounded(points: int, last: int) -> list[int]:
    if points == 1:
        return [last]
    return sorted({round(last ** (index / (points - 1))) for index in range(points)})


def when(scalar: str, *, above: float | None = None, below: float | None = None) -> Schedule:
    """Record the step at which a scalar given to `observe` passes a level."""
    if (above is None) == (below is None):
        raise ValueError(f"when() takes above= or below=, one of them, got above={above} and below={below}")
    return Crossing(scalar, above if above is not None else float(below), rising=above is not None)  # type: ignore[arg-type]


def when_changed(scalar: str, share: float = 0.1) -> Schedule:
    """Record whenever a scalar has moved by this share of its value at the last recorded step."""
    if not share > 0:
        raise ValueError(f"a share is above 0, got {share}; when_changed({scalar!r}, 0.1) waits for a tenth")
    return Changed(scalar, share)


def either(*schedules: Schedule) -> Schedule:
    """Record when any of the schedules is due."""
    if not schedules or not all(isinstance(schedule, Schedule) for schedule in schedules):
        raise ValueError(f"either() takes schedules, got {schedules}; as in either(every(100), at(1, 10))")
    return Either(schedules)
