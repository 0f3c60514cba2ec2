"""A paper's claims as values: what it says, what we saw, and whether that agrees.

A study measures first and is judged afterwards. Judging never raises: a claim that fails, that met no number or whose
rule broke is a row of the table that does not hold, with what was seen instead.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Source = Literal["paper", "author's code", "second-hand", "independent run"]


@dataclass(frozen=True)
class Band:
    """The closed interval of values that agree with a claim; an open side is infinite.

    >>> str(Band(92, 96)), str(Band(low=97)), str(Band(high=25)), str(Band(low=math.nextafter(0, 1)))
    ('92 .. 96', '>= 97', '<= 25', '> 0')
    """

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"a band needs low <= high, got {self.low} and {self.high}; swap the two ends")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high  # NaN is in no band

    def __str__(self) -> str:
        if math.isinf(self.low) and math.isinf(self.high):
            return "any number"
        if math.isinf(self.high):
            return "> 0" if 0 < self.low < sys.float_info.min else f">= {self.low:g}"
        if math.isinf(self.low):
            return f"<= {self.high:g}"
        return f"{self.low:g} .. {self.high:g}"


def around(value: float, tolerance: float) -> Band:
    """The band `value - tolerance .. value + tolerance`."""
    return Band(value - tolerance, value + tolerance)


def within_share(value: float, share: float) -> Band:
    """The band of relative half-width `share` about `value`; 0.1 accepts ten per cent either way."""
    return around(value, abs(value) * share)


def positions_are(*expected: int) -> Callable[[Any], bool]:
    """Accept a list that is exactly the expected one."""

    def accept(found: Any) -> bool:
        return list(found) == list(expected)

    accept.__doc__ = f"exactly {list(expected)}"
    return accept


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that a number can contradict.

    `accept` is a `Band`, or any callable from one seed's value to a truth value, for claims about positions or sets
    (its docstring's first line, or else its name, is printed as the tolerance). `every_seed` asks each seed to agree,
    instead of the median over seeds. `claimed` is None where the paper states no number.
    """

    id: str
    sentence: str
    where: str
    claimed: float | str | None
    source: Source
    accept: Band | Callable[[Any], bool]
    unit: str = ""
    every_seed: bool = False

    @property
    def tolerance(self) -> str:
        if isinstance(self.accept, Band):
            text = str(self.accept)
        else:
            named = str(self.accept.__doc__ or getattr(self.accept, "__name__", "as stated"))
            text = named.strip().splitlines()[0].rstrip(".")
        return f"{text}, every seed" if self.every_seed else text


@dataclass(frozen=True)
class Verdict:
    """A claim beside what was measured: one row of the table, one object of the JSON file.

    `ours` is the median over seeds and `spread` the smallest and largest value; values that are not numbers (positions,
    sets) are written out instead. `baseline` is the same quantity under a null: chance, initialisation, a control.
    """

    id: str
    sentence: str
    where: str
    claimed: float | str | None
    source: Source
    ours: float | str | None
    spread: tuple[float, float] | None
    seeds: int
    tolerance: str
    holds: bool
    baseline: float | str | None = None
    unit: str = ""
    note: str = ""


def judged(claim: Claim, values: Any, *, baseline: float | str | None = None, note: str = "") -> Verdict:
    """Compare one value per seed (a list, or a single value) with the claim; a failure is a result, not an error."""
    per_seed = list(values) if isinstance(values, (list, tuple)) else [values]
    numbers = [_as_number(value) for value in per_seed]
    ours: float | str | None = None
    spread = None
    holds = False
    if per_seed and all(number is not None for number in numbers):
        present = [number for number in numbers if number is not None]
        ours, spread = statistics.median(present), (min(present), max(present))
        if any(math.isnan(number) for number in present):
            ours = math.nan  # a sort puts NaN anywhere, so the median would hide it
        judged_values: list[Any] = present if claim.every_seed else [ours]
    else:
        if any(value is not None for value in per_seed):
            ours = " | ".join(dict.fromkeys("nothing" if value is None else str(value) for value in per_seed))
        judged_values = per_seed  # there is no median of positions: every seed must agree
    if per_seed and not any(value is None for value in per_seed):
        try:
            holds = all(_accepted(claim.accept, value) for value in judged_values)
        except Exception as broken:  # a rule that cannot judge this value is a claim that does not hold
            note = f"{note}; " * bool(note) + f"could not be judged: {broken}"
    else:
        note = f"{note}; " * bool(note) + "no value was measured"
    return Verdict(
        id=claim.id,
        sentence=claim.sentence,
        where=claim.where,
        claimed=claim.claimed,
        source=claim.source,
        ours=ours,
        spread=spread,
        seeds=len(per_seed),
        tolerance=claim.tolerance,
        holds=holds,
        baseline=baseline,
        unit=claim.unit,
        note=note,
    )


def judged_all(
    claims: Sequence[Claim],
    values: Mapping[str, Any],
    baselines: Mapping[str, float | str] | None = None,
    notes: Mapping[str, str] | None = None,
) -> list[Verdict]:
    """A verdict per claim, from values, baselines and notes by claim id; a claim nobody measured does not hold."""
    unknown = set(values) - {claim.id for claim in claims}
    if unknown:
        raise ValueError(f"values are given by the id of a claim, got {sorted(unknown)}, which no claim has")
    return [
        judged(
            claim,
            values.get(claim.id, []),
            baseline=(baselines or {}).get(claim.id),
            note=(notes or {}).get(claim.id, ""),
        )
        for claim in claims
    ]


def _accepted(accept: Band | Callable[[Any], bool], value: Any) -> bool:
    return value in accept if isinstance(accept, Band) else bool(accept(value))


def _as_number(value: Any) -> float | None:
    """A scalar of any library as a float; None for what is not one number."""
    if value is None or isinstance(value, (str, bool, list, tuple, set, dict)):
        return float(value) if isinstance(value, bool) else None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None


@dataclass(frozen=True)
class StudyOptions:
    """What a user chooses about a study: a short version, how many seeds, where data and the run live, which device."""

    quick: bool = False
    seeds: int = 3
    data: Path | None = None
    run: Path | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class StudyResult:
    """The judged claims and the labelled data (name -> xarray.Dataset) the figures are drawn from."""

    study: str
    verdicts: list[Verdict]
    records: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def all_hold(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)

    def __str__(self) -> str:
        from tangentlens.studies.claims_table import table  # which needs verdicts

        notes = "".join(f"\n{note}" for note in self.notes)
        return table(self.verdicts) + notes


@dataclass(frozen=True)
class Study:
    """One paper: its name, and the function that measures everything it claims.

    `quick_seeds` is how many seeds the short version repeats over unless a user says otherwise.
    """

    name: str
    title: str
    paper: str
    run: Callable[[StudyOptions], StudyResult]
    quick_seeds: int = 3


def claims_json(verdicts: Sequence[Verdict]) -> str:
    """The table as a JSON list of objects; a number that is not finite is written as null, as JSON has none."""
    return json.dumps([_jsonable(vars(verdict)) for verdict in verdicts], indent=1, ensure_ascii=False)


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_claims(verdicts: Sequence[Verdict], file: Path | str) -> None:
    """Write the table of claims as JSON."""
    Path(file).write_text(claims_json(verdicts) + "\n", encoding="utf-8")
