"""All measures of one step: their rows, what each took, and which failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from tangentlens.record.budget import Budget
from tangentlens.record.clock import Clock
from tangentlens.record.measure import Measure, Row, rows_of
from tangentlens.record.schedule import Moment
from tangentlens.record.snapshot import Snapshot


@dataclass
class Reckoning:
    """What one recorded step gave."""

    rows: dict[str, Row] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def failed(self, step: int, measure: str, error: Exception) -> None:
        """Note a failure; `measure` is empty when it was none of them."""
        self.failures.append({"step": step, "measure": measure, "type": type(error).__name__, "message": str(error)})


def measured(
    measures: Iterable[Measure],
    snapshot: Snapshot,
    reckoning: Reckoning,
    budget: Budget,
    moment: Moment,
    *,
    forced: bool,
    strict: bool,
) -> None:
    """Run the measures that are due and affordable; a failure is kept with its step and costs that variable only.

    `moment` is this recorded step after the recorded one before: a measure's own schedule thins the recorded steps.
    """
    reckoning.notes = snapshot.notes
    groups: dict[str, list[Measure]] = {}
    for measure in measures:
        if measure.schedule is None or measure.schedule.due(moment):
            groups.setdefault(measure.name.split("/")[0], []).append(measure)
    for group in budget.order(list(groups)):
        if not budget.affords(group, forced):
            continue
        began = perf_counter()
        for measure in groups[group]:
            _measure(measure, snapshot, reckoning, strict)
        budget.book(group, perf_counter() - began)


def _measure(measure: Measure, snapshot: Snapshot, reckoning: Reckoning, strict: bool) -> None:
    start = perf_counter()
    try:
        reckoning.rows.update(rows_of(measure, measure.compute(snapshot)))
    except Exception as error:
        if strict:
            raise
        reckoning.failed(snapshot.step, measure.name, error)
    reckoning.seconds[measure.name] = perf_counter() - start


def scalar_rows(values: Mapping[str, float]) -> dict[str, Row]:
    """The training loop's own numbers."""
    return {f"training/{name}": _number(value) for name, value in values.items()}


def not_finite(rows: Mapping[str, Row]) -> list[str]:
    """The numbers of /training that were given or measured and are inf or nan: in the record nan is also "missing"."""
    inside = {path.removeprefix("training/"): row for path, row in rows.items() if path.startswith("training/")}
    return [name for name, row in inside.items() if row.values.ndim == 0 and not np.isfinite(row.values)]


def overhead_rows(clock: Clock, training: float, measuring: float, reckoning: Reckoning) -> dict[str, Row]:
    """The recorder's own cost, as data like any other."""
    by_measure = Row(("measure",), np.array(list(reckoning.seconds.values())), {"measure": list(reckoning.seconds)},
                     {"units": "s", "long_name": "time of each measure"})  # fmt: skip
    return {
        "overhead/measuring": _number(measuring, units="s", long_name="time measuring"),
        "overhead/writing": _number(clock.writing, units="s", long_name="time handing over the step before"),
        "overhead/training": _number(training, units="s", long_name="time training since the recorded step before"),
        "overhead/share": _number(clock.share, units="", long_name="recorder's share of the run time"),
        **({"overhead/seconds": by_measure} if reckoning.seconds else {}),
    }


def _number(value: float, **attrs: str) -> Row:
    return Row((), np.asarray(value, dtype=np.float64), {}, attrs)
