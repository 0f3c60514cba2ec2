"""A claim together with how its value is read from the results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tangentlens.studies.claims import Band, Claim, Source, Verdict, judged
from tangentlens.studies.nam2024.results import EXPERIMENTS, Results, without_value


@dataclass(frozen=True)
class Question:
    """`values` gives one value per seed, `baseline` the same under a null; neither knows what is claimed."""

    claim: Claim
    values: Callable[[Results], list[Any]]
    baseline: Callable[[Results], list[float]] | float | None = None
    note: str = ""

    def answered(self, results: Results) -> Verdict:
        baseline: float | None = None
        if callable(self.baseline):
            found = self.baseline(results)
            baseline = statistics.median(found) if found else None
        else:
            baseline = self.baseline
        asked_for = _Remembering(results)
        values = self.values(asked_for)
        missing = without_value(results, asked_for.experiments) if _incomplete(values, results, asked_for) else []
        return judged(self.claim, values, baseline=baseline, note="; ".join([self.note] * bool(self.note) + missing))


class _Remembering(Results):
    """The results, and of which experiments somebody has asked: a value that is missing is put down to these."""

    def __init__(self, results: Results) -> None:
        super().__init__(**vars(results))
        self.experiments: dict[str, None] = {}  # a set that keeps its order

    def __getattribute__(self, name: str) -> Any:
        if name in EXPERIMENTS:
            self.experiments[name] = None
        return super().__getattribute__(name)


def _incomplete(values: list[Any], results: Results, asked_for: _Remembering) -> bool:
    """Whether a seed is missing, or a number."""
    missing = any(name in results.absent for name in asked_for.experiments)
    return missing or not values or any(isinstance(value, float) and math.isnan(value) for value in values)


def asked(
    id: str, sentence: str, where: str, claimed: float | str | None, accept: Band | Callable[[Any], bool],
    values: Callable[[Results], list[Any]], *, source: Source = "second-hand",
    baseline: Callable[[Results], list[float]] | float | None = None, unit: str = "", every_seed: bool = False,
    note: str = "",
) -> Question:  # fmt: skip
    """A question in one call; the numbers of this paper reached us second-hand."""
    return Question(Claim(id, sentence, where, claimed, source, accept, unit, every_seed), values, baseline, note)


POSITIVE = Band(low=1e-9)
NEGATIVE = Band(high=-1e-9)


def only(wanted: str) -> Callable[[Any], bool]:
    """Accept one word; the word is what the table prints as tolerance."""

    def accept(value: object) -> bool:
        return value == wanted

    accept.__doc__ = wanted
    return accept


def yes(value: bool) -> str:
    return "yes" if value else "no"
