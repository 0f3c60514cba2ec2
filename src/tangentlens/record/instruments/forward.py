"""The forward features along the run: how good, how used, how strong, and how rich the dynamics that made them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from tangentlens.errors import BadInput
from tangentlens.measures.forward_moments import ForwardMoments, forward_moments, merged, target_columns
from tangentlens.measures.forward_reading import ForwardReading, forward_reading
from tangentlens.measures.jackknife import Interval, jackknife
from tangentlens.measures.quality import Normalisation, held_out_quality
from tangentlens.measures.regimes import DEFAULT_THRESHOLDS, Regime, RegimeThresholds
from tangentlens.measures.richness import RANK_TOLERANCE, Convention, richness
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

REGIMES = ("coefficient learning", "minimal feature", "extended feature")
MODES = 128
GROUPS = 10
# the interval needs the moments of every group at once: 90 MB at this width
INTERVAL_UNITS = 1024


def forward(
    targets: bool = True, *, examples: int | None = None, modes: int = MODES, normalisation: Normalisation = "subspace",
    tolerance: float = RANK_TOLERANCE["robust"], thresholds: RegimeThresholds = DEFAULT_THRESHOLDS,
) -> list[Measure]:  # fmt: skip
    """Measures of the group `forward`: of the head's input, with one pass and one decomposition a step.

    Few examples bias them (at least four a unit for an ordering, sixteen for a value), so the whole probe is used
    unless told otherwise. `normalisation`, `tolerance` and `thresholds` are those of `forward_reading`, and stand in
    the record beside what they decide.
    """

    def part(snapshot: Snapshot) -> Snapshot:
        return snapshot.subset(examples)

    def reading(snapshot: Snapshot) -> ForwardReading:
        return part(snapshot).reading(_reading, normalisation, tolerance, thresholds)

    def number(name: str, value: Callable[[ForwardReading], Any], long_name: str, **attrs: Any) -> Measure:
        return Measure(f"forward/{name}", (), lambda s: _number(value(reading(s))), needs=needs,
                       attrs={"long_name": long_name, "units": "", **attrs})  # fmt: skip

    def curve(name: str, value: Callable[[ForwardReading], Tensor | None], long_name: str, **attrs: Any) -> Measure:
        return Measure(f"forward/{name}", ("mode",), lambda s: _curve(value(reading(s)), modes), needs=needs,
                       attrs={"long_name": long_name, "units": "", **attrs})  # fmt: skip

    def bound(name: str, value: Callable[[Interval], float], long_name: str) -> Measure:
        return Measure(f"forward/{name}", (), lambda s: _bound(part(s).reading(_by_groups, normalisation)[0], value),
                       attrs={"long_name": long_name, "units": ""})  # fmt: skip

    needs = frozenset({"initial"}) | (frozenset({"targets"}) if targets else frozenset())
    unit = {"bounds": [0.0, 1.0]}
    measures = [
        Measure("forward/eigenvalues", ("mode",), lambda s: _eigenvalues(part(s), reading(s))[:modes],
                needs=needs, attrs={"long_name": "eigenvalue of the feature operator", "units": "", "scale": "log"}),
        curve("relative_eigenvalues", lambda r: r.relative_eigenvalues, "relative eigenvalue", scale="log", **unit),
        curve("cumulative_utilisation", lambda r: r.cumulative_utilisation, "learned function within the modes so far",
              normalisation=normalisation, question="How many features does the last layer use?", **unit),
        number("effective_dimension", lambda r: r.eigenvalue_dimension, "effective dimension of the eigenvalues"),
        number("effective_dimension_utilisation", lambda r: r.utilisation_dimension, "the same of the utilisation"),
        number("richness", lambda r: r.paper.distance, "D_LR: 0 rich, 1 lazy", **unit, initial="richness_initial",
               null="richness_isotropic", chance="richness_random_head", low="richness_low", high="richness_high",
               question="How rich were the dynamics?"),
        bound("richness_low", lambda interval: interval.low, "D_LR without its bias, 95 % interval, lower end"),
        bound("richness_high", lambda interval: interval.high, "D_LR without its bias, 95 % interval, upper end"),
        number("richness_robust", lambda r: r.robust.distance, "D_LR without offsets and faint directions", **unit,
               initial="richness_initial_robust", null="richness_isotropic", chance="richness_random_head_robust",
               tolerance=tolerance),
        number("richness_initial", lambda r: r.initial, "D_LR of the initial network", **unit),
        Measure("forward/richness_initial_robust", (),
                lambda s: part(s).beginning.reading(_distance, "robust", tolerance), needs=needs,
                attrs={"long_name": "the same in the robust convention", "units": "", **unit}),
        number("richness_isotropic", lambda r: r.isotropic, "D_LR of equally strong features", **unit),
        number("richness_random_head", lambda r: r.random_head, "D_LR under random heads", **unit),
        number("richness_random_head_robust", lambda r: r.random_head_robust, "the same in the robust convention",
               **unit),
        number("inside_share", lambda r: r.robust.share, "feature variance inside the span of the outputs", **unit),
        number("participation_ratio", lambda r: r.robust.participation, "number of equally strong features"),
        number("output_rank", lambda r: r.robust.rank, "rank of the outputs"),
        number("initial_alignment", lambda r: r.similarity, "similarity to the initial features", **unit),
        number("regime", lambda r: _code(r.regime), "regime", flag_values=[0, 1, 2],
               flag_meanings=" ".join(name.replace(" ", "_") for name in REGIMES),
               thresholds=json.dumps(asdict(thresholds))),
    ]  # fmt: skip
    if not targets:
        return measures
    return measures + [
        curve("cumulative_quality", lambda r: r.cumulative_quality, "target in the modes so far", **unit,
              normalisation=normalisation, chance="quality_chance", held_out="cumulative_quality_held_out",
              question="How well could the features express the target?"),
        Measure("forward/cumulative_quality_held_out", ("mode",),
                lambda s: _curve(part(s).reading(_by_groups, normalisation)[1], modes), needs=needs,
                attrs={"long_name": "target in the modes so far, fitted on one half and judged on the other",
                       "units": "", "normalisation": normalisation}),
        number("quality_chance", lambda r: r.chance_quality, "quality of as many unrelated features", **unit),
        number("effective_dimension_quality", lambda r: r.quality_dimension, "effective dimension of the quality"),
        number("nc1", lambda r: r.collapse, "spread within classes beside that between them", scale="log"),
    ]  # fmt: skip


def _targets(snapshot: Snapshot) -> Tensor | None:
    """Columns of numbers, one row for each row of the features; None where the probe's targets are nothing of the kind.

    Targets of places are those of rows where every place is a row. What cannot be read costs the quality only.
    """
    found, targets = snapshot.features(), snapshot.targets
    if targets is None:
        return None
    rows, said = len(found.values), snapshot.notes.setdefault("forward", {})
    if len(targets) != rows and targets.shape[:2].numel() == rows:
        targets = targets.flatten(0, 1)
    if len(targets) != rows:
        said["targets"] = f"left out: {len(targets)} of them for {rows} rows of features"
        return None
    labels = not targets.is_floating_point() and targets.numel() == rows
    try:
        return target_columns(targets.flatten() if labels else targets, found.outputs)
    except BadInput as unreadable:
        said["targets"] = f"left out: {unreadable}"
        return None


def _moments(snapshot: Snapshot) -> ForwardMoments:
    found, before = snapshot.features(), snapshot.beginning.features()
    snapshot.notes.setdefault("forward", {}).update(
        layer=found.layer, features=found.values.shape[1], outputs=found.outputs.shape[1], reading=found.reading
    )
    return forward_moments(found.values, found.outputs, snapshot.reading(_targets), initial=before.values)


def _reading(
    snapshot: Snapshot, normalisation: Normalisation, tolerance: float, thresholds: RegimeThresholds
) -> ForwardReading:
    found = forward_reading(
        snapshot.reading(_moments), initial=snapshot.beginning.reading(_distance, "paper", None),
        normalisation=normalisation, tolerance=tolerance, thresholds=thresholds,
    )  # fmt: skip
    said = snapshot.notes.setdefault("forward", {})
    about_targets = (f"targets {said['targets']}",) if "targets" in said else ()
    said["cautions"] = "; ".join((*found.cautions, *about_targets))
    return found


def _distance(snapshot: Snapshot, convention: Convention, tolerance: float | None) -> float:
    return richness(snapshot.reading(_moments), convention, tolerance=tolerance).distance


def _by_groups(snapshot: Snapshot, normalisation: Normalisation) -> tuple[Interval | None, Tensor | None]:
    """What takes moments of disjoint examples: the interval of D_LR, and the quality held out; None without them.

    The interval leaves out a tenth of the examples at a time. The quality is fitted on one half and judged on the
    other, both ways round, for as many modes as both halves resolve.
    """
    found, targets = snapshot.features(), snapshot.reading(_targets)
    count = GROUPS if found.values.shape[1] <= INTERVAL_UNITS else 2
    if len(found.values) < 2 * GROUPS:
        return None, None
    groups = [
        forward_moments(found.values[g::count], found.outputs[g::count], None if targets is None else targets[g::count])
        for g in range(count)
    ]
    interval = jackknife(groups, lambda part: richness(part, "paper").distance) if count == GROUPS else None
    if targets is None:
        return interval, None
    halves = merged(groups[::2]), merged(groups[1::2])
    curves = [held_out_quality(*pair, normalisation=normalisation) for pair in (halves, halves[::-1])]
    shared = min(map(len, curves))
    return interval, (curves[0][:shared] + curves[1][:shared]) / 2


def _bound(interval: Interval | None, value: Callable[[Interval], float]) -> float:
    return math.nan if interval is None else value(interval)


def _eigenvalues(snapshot: Snapshot, found: ForwardReading) -> Tensor:
    """From those relative to the first and their sum, the trace: modes left out as unresolved are below rounding."""
    relative = found.relative_eigenvalues
    return relative * (snapshot.reading(_moments).second_moment("features", "features").trace() / relative.sum())


def _code(regime: Regime) -> float:
    """The flag value of a regime; none where it is undetermined."""
    return REGIMES.index(regime.name) if regime.name in REGIMES else math.nan


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _curve(values: Tensor | None, modes: int) -> Tensor:
    return torch.zeros(0, dtype=torch.float64) if values is None else values[:modes]
