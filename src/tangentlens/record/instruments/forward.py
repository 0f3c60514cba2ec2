"""The forward features along the run: how good, how used, how strong, and how rich the dynamics that made them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from tangentlens.measures.forward_moments import ForwardMoments, forward_moments
from tangentlens.measures.forward_reading import ForwardReading, forward_reading
from tangentlens.measures.jackknife import Interval, jackknife
from tangentlens.measures.regimes import RegimeThresholds
from tangentlens.measures.richness import richness
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

REGIMES = ("coefficient learning", "minimal feature", "extended feature")
MODES = 128
GROUPS = 10
# the interval holds the moments of every group at once: 90 MB at this width
INTERVAL_UNITS = 1024


def forward(targets: bool = True, *, examples: int | None = None, modes: int = MODES) -> list[Measure]:
    """Measures of the group `forward`: of the head's input, with one pass and one decomposition a step.

    Few examples bias them (at least four a unit for an ordering, sixteen for a value), so the whole probe is used
    unless told otherwise.
    """

    def reading(snapshot: Snapshot) -> ForwardReading:
        return snapshot.subset(examples).reading(_reading)

    def number(name: str, value: Callable[[ForwardReading], Any], long_name: str, **attrs: Any) -> Measure:
        return Measure(f"forward/{name}", (), lambda s: _number(value(reading(s))), needs=needs,
                       attrs={"long_name": long_name, "units": "", **attrs})  # fmt: skip

    def curve(name: str, value: Callable[[ForwardReading], Tensor | None], long_name: str, **attrs: Any) -> Measure:
        return Measure(f"forward/{name}", ("mode",), lambda s: _curve(value(reading(s)), modes), needs=needs,
                       attrs={"long_name": long_name, "units": "", **attrs})  # fmt: skip

    def bound(name: str, value: Callable[[Interval], float], long_name: str) -> Measure:
        return Measure(f"forward/{name}", (), lambda s: _bound(s.subset(examples).reading(_interval), value),
                       attrs={"long_name": long_name, "units": ""})  # fmt: skip

    needs = frozenset({"initial"}) | (frozenset({"targets"}) if targets else frozenset())
    unit = {"bounds": [0.0, 1.0]}
    measures = [
        Measure("forward/eigenvalues", ("mode",), lambda s: s.subset(examples).reading(_eigenvalues)[:modes],
                needs=needs, attrs={"long_name": "eigenvalue of the feature operator", "units": "", "scale": "log"}),
        curve("relative_eigenvalues", lambda r: r.relative_eigenvalues, "relative eigenvalue", scale="log", **unit),
        curve("cumulative_utilisation", lambda r: r.cumulative_utilisation, "learned function within the modes so far",
              question="How many features does the last layer use?", **unit),
        number("effective_dimension", lambda r: r.eigenvalue_dimension, "effective dimension of the eigenvalues"),
        number("effective_dimension_utilisation", lambda r: r.utilisation_dimension, "the same of the utilisation"),
        number("richness", lambda r: r.paper.distance, "D_LR: 0 rich, 1 lazy", **unit, initial="richness_initial",
               null="richness_isotropic", chance="richness_random_head", low="richness_low", high="richness_high",
               question="How rich were the dynamics?"),
        bound("richness_low", lambda interval: interval.low, "D_LR without its bias, 95 % interval, lower end"),
        bound("richness_high", lambda interval: interval.high, "D_LR without its bias, 95 % interval, upper end"),
        number("richness_robust", lambda r: r.robust.distance, "D_LR without offsets and faint directions", **unit,
               initial="richness_initial", null="richness_isotropic", chance="richness_random_head"),
        number("richness_initial", lambda r: r.initial, "D_LR of the initial network", **unit),
        number("richness_isotropic", lambda r: r.isotropic, "D_LR of equally strong features", **unit),
        number("richness_random_head", lambda r: r.random_head, "D_LR under random heads", **unit),
        number("inside_share", lambda r: r.robust.share, "feature variance inside the span of the outputs", **unit),
        number("participation_ratio", lambda r: r.robust.participation, "number of equally strong features"),
        number("output_rank", lambda r: r.robust.rank, "rank of the outputs"),
        number("initial_alignment", lambda r: r.similarity, "similarity to the initial features", **unit),
        number("regime", lambda r: REGIMES.index(r.regime.name), "regime", flag_values=[0, 1, 2],
               flag_meanings=" ".join(name.replace(" ", "_") for name in REGIMES),
               thresholds=json.dumps(asdict(RegimeThresholds()))),
    ]  # fmt: skip
    if not targets:
        return measures
    return measures + [
        curve("cumulative_quality", lambda r: r.cumulative_quality, "target in the modes so far", **unit,
              chance="quality_chance", question="How well could the features express the target?"),
        number("quality_chance", lambda r: r.chance_quality, "quality of as many unrelated features", **unit),
        number("effective_dimension_quality", lambda r: r.quality_dimension, "effective dimension of the quality"),
        number("nc1", lambda r: r.collapse, "spread within classes beside that between them", scale="log"),
    ]  # fmt: skip


def _moments(snapshot: Snapshot) -> ForwardMoments:
    found, before = snapshot.features(), snapshot.beginning.features()
    targets = snapshot.targets
    if targets is not None and len(targets) != len(found.values):
        targets = None  # several rows an example: targets of examples do not belong to them
    snapshot.notes.setdefault("forward", {}).update(
        layer=found.layer, features=found.values.shape[1], outputs=found.outputs.shape[1], reading=found.reading
    )
    return forward_moments(found.values, found.outputs, targets, initial=before.values)


def _reading(snapshot: Snapshot) -> ForwardReading:
    initial = snapshot.beginning.reading(_literal_richness)
    found = forward_reading(snapshot.reading(_moments), initial=initial)
    snapshot.notes.setdefault("forward", {})["cautions"] = "; ".join(found.cautions)
    return found


def _interval(snapshot: Snapshot) -> Interval | None:
    """By leaving out a tenth of the examples at a time; None where they are too few or the features too wide."""
    found = snapshot.features()
    if len(found.values) < 2 * GROUPS or found.values.shape[1] > INTERVAL_UNITS:
        return None
    groups = [forward_moments(found.values[g::GROUPS], found.outputs[g::GROUPS]) for g in range(GROUPS)]
    return jackknife(groups, lambda part: richness(part, "paper").distance)


def _bound(interval: Interval | None, value: Callable[[Interval], float]) -> float:
    return math.nan if interval is None else value(interval)


def _literal_richness(snapshot: Snapshot) -> float:
    return richness(snapshot.reading(_moments), "paper").distance


def _eigenvalues(snapshot: Snapshot) -> Tensor:
    """From those relative to the first and their sum, the trace: modes left out as unresolved are below rounding."""
    relative = snapshot.reading(_reading).relative_eigenvalues
    return relative * (snapshot.reading(_moments).second_moment("features", "features").trace() / relative.sum())


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _curve(values: Tensor | None, modes: int) -> Tensor:
    return torch.zeros(0, dtype=torch.float64) if values is None else values[:modes]
