"""What all experiments found, one entry per seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from tangentlens.errors import BadInput
from tangentlens.studies.datasets import MissingData
from tangentlens.studies.nam2024.digits import (
    Arms,
    Downscaled,
    downscaled_targets,
    frozen_and_full,
    shortcut,
    shuffled_labels,
    weight_decay,
)
from tangentlens.studies.nam2024.grokking import Moment, grokking
from tangentlens.studies.nam2024.layers import every_layer
from tangentlens.studies.nam2024.looking import Look
from tangentlens.studies.nam2024.material import Material
from tangentlens.studies.nam2024.pictures import (
    batch_norm,
    fully_connected_on_pictures,
    learning_rate,
    training_size,
)
from tangentlens.studies.nam2024.regression import Curve, regression

Scored = tuple[Arms, dict[str, float]]


@dataclass
class Results:
    """Per experiment, the outcome of every seed; `absent` says by experiment why one or all of them are missing."""

    regression: list[tuple[list[Look], list[Curve]]] = field(default_factory=list)
    frozen: list[Arms] = field(default_factory=list)
    shortcut: list[Scored] = field(default_factory=list)
    shuffled: list[Scored] = field(default_factory=list)
    weight_decay: list[Arms] = field(default_factory=list)
    downscaled: list[Downscaled] = field(default_factory=list)
    layers: list[dict[str, Look]] = field(default_factory=list)
    training_size: list[Arms] = field(default_factory=list)
    learning_rate: list[Arms] = field(default_factory=list)
    batch_norm: list[Arms] = field(default_factory=list)
    fully_connected: list[Arms] = field(default_factory=list)
    grokking: list[list[Moment]] = field(default_factory=list)
    absent: dict[str, list[str]] = field(default_factory=dict)


EXPERIMENTS: dict[str, Callable[[Material, int], Any]] = {
    "regression": regression,
    "frozen": frozen_and_full,
    "shortcut": shortcut,
    "shuffled": shuffled_labels,
    "weight_decay": weight_decay,
    "downscaled": downscaled_targets,
    "layers": every_layer,
    "training_size": training_size,
    "learning_rate": learning_rate,
    "batch_norm": batch_norm,
    "fully_connected": fully_connected_on_pictures,
    "grokking": grokking,
}


def measured(material: Material, seeds: int, *, chosen: tuple[str, ...] = tuple(EXPERIMENTS)) -> Results:
    """Run the experiments, every seed of one after the other."""
    results = Results()
    steps = tqdm([(name, seed) for name in chosen for seed in range(seeds)], desc="nam2024", disable=None)
    for name, seed in steps:
        steps.set_postfix_str(name)
        try:
            getattr(results, name).append(EXPERIMENTS[name](material, seed))
        except MissingData as absent:
            results.absent[name] = [str(absent)]
        except BadInput as broken:  # a training that diverged is a result; the other seeds go on
            results.absent.setdefault(name, []).append(f"seed {seed}: {broken}")
    return results


def without_value(results: Results, experiments: Collection[str]) -> list[str]:
    """Why a number read from these experiments may be missing: seeds that are, and looks at which D_LR has no value."""
    found = [f"{name}: {reason}" for name in experiments for reason in results.absent.get(name, [])]
    ended = Counter(
        (name, arm, looks[-1].constant)
        for name, _, arm, looks in all_arms(results)
        if name in experiments and math.isnan(looks[-1].distance)
    )
    for (name, arm, constant), count in ended.items():
        seeds = len(getattr(results, name))
        found.append(f"{name}: {arm} ends without a D_LR in {count} of {seeds} seeds, as its {constant} do not vary")
    return found


def all_arms(results: Results) -> Iterator[tuple[str, int, str, list[Look]]]:
    """(experiment, seed, arm, looks over steps) of everything that was measured."""
    for name in EXPERIMENTS:
        for seed, outcome in enumerate(getattr(results, name)):
            for arm, looks in _arms(name, outcome).items():
                yield name, seed, arm, looks


def _arms(name: str, outcome: Any) -> Arms:
    if name == "regression":
        return {"sine": outcome[0]}
    if name == "grokking":
        return {"addition": [moment.look for moment in outcome]}
    if name == "layers":
        return {layer: [look] for layer, look in outcome.items()}
    arms = outcome[0] if isinstance(outcome, tuple) else outcome
    assert isinstance(arms, dict)
    return arms
