"""The runs of the study as labelled data, one dataset each, for figures and for the reader's own questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tangentlens.studies.beaglehole2024.chain_runs import ChainRun
from tangentlens.studies.beaglehole2024.early import Early
from tangentlens.studies.beaglehole2024.images import Curves
from tangentlens.studies.beaglehole2024.transformer import TransformerRun

if TYPE_CHECKING:
    import xarray as xr


def chain_record(runs: Mapping[str, Sequence[ChainRun]]) -> dict[str, xr.Dataset]:
    """One dataset (seed, step) per way of training: ways differ in their numbers of steps."""
    import xarray as xr

    found = {}
    for name, repeated in runs.items():
        first = repeated[0]
        variables = {
            reading: (("seed", "step"), np.array([[look[reading] for look in run.readings] for run in repeated]))
            for reading in first.readings[0]
        }
        coords = {"seed": [run.seed for run in repeated], "step": first.steps}
        setting = first.setting
        attrs = {"setting": name, "scale": setting.scale, "rate": setting.rate, "speeds": str(dict(setting.speeds))}
        found[f"chain/{name}"] = xr.Dataset(variables, coords, attrs)
    return found


def early_record(found: Sequence[Early]) -> xr.Dataset:
    """Predictions and simulations (exponent, seed)."""
    import xarray as xr

    exponents, seeds = sorted({one.exponent for one in found}), sorted({one.seed for one in found})
    by_place = {(one.exponent, one.seed): one for one in found}
    variables = {
        name: (
            ("exponent", "seed"),
            np.array([[getattr(by_place[exponent, seed], name) for seed in seeds] for exponent in exponents]),
        )
        for name in ("predicted", "infinite_width", "simulated", "null")
    }
    return xr.Dataset(variables, {"exponent": exponents, "seed": seeds})


def curves_record(runs: Sequence[Curves]) -> xr.Dataset:
    """Readings (seed, epoch, layer) and errors (seed, epoch) of one network on one dataset."""
    import xarray as xr

    first = runs[0]
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        name: (("seed", "epoch", "layer"), np.array([[look[name] for look in run.readings] for run in runs]))
        for name in first.readings[0]
    }
    for name in ("train_error", "test_error", "test_accuracy"):
        variables[name] = (("seed", "epoch"), np.array([getattr(run, name) for run in runs]))
    return xr.Dataset(variables, {"seed": list(range(len(runs))), "epoch": first.epochs, "layer": first.layers})


def transformer_record(runs: Sequence[TransformerRun]) -> xr.Dataset:
    """Readings (seed, layer, look): after the first step and after the last."""
    import xarray as xr

    first = runs[0].parts
    readings = next(iter(first.values()))
    variables = {
        name: (("seed", "layer", "look"), np.array([[part[name] for part in run.parts.values()] for run in runs]))
        for name in readings
    }
    variables["loss"] = (("seed", "look"), np.array([run.loss for run in runs]))  # type: ignore[assignment]
    return xr.Dataset(variables, {"seed": list(range(len(runs))), "layer": list(first), "look": ["first", "last"]})
