"""A claim together with how its value is read from the results."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tangentlens.studies.claims import Band, Claim, Source, Verdict, judged
from tangentlens.studies.nam2024.results import Results


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
        return judged(self.claim, self.values(results), baseline=baseline, note=self.note)


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
