"""The study's measurements as labelled data, from which its figures are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import xarray as xr

from tangentlens.measures.mode_map import column_normalised
from tangentlens.measures.tracking import onset, rate_of_change
from tangentlens.studies.lin2025.modular_mlp import FAMILIES, ONSET, MLPRun
from tangentlens.studies.lin2025.modular_transformer import TransformerRun
from tangentlens.studies.lin2025.superposition import SuperpositionRun


def mlp_dataset(runs: Sequence[MLPRun]) -> xr.Dataset:
    """Accuracies, spectra, the overlaps of both windows and their rates, of the learned block, and of the layers."""

    def stacked(name: str) -> np.ndarray:
        return np.array([getattr(run, name) for run in runs], dtype=float)

    def overlaps(of: Callable[[MLPRun], dict[str, list[float]]]) -> np.ndarray:
        return np.array([[of(run)[family] for family in FAMILIES] for run in runs], dtype=float)

    missing = dict.fromkeys(FAMILIES, [math.nan] * len(runs[0].steps))
    second = overlaps(lambda run: run.second_block)
    rates = np.apply_along_axis(lambda series: 10 * rate_of_change(runs[0].steps, series.tolist()).numpy(), -1, second)
    spectra = np.stack([torch.stack(run.eigenvalues).numpy() for run in runs])
    places = [run.learned.places if run.learned else [(math.nan, math.nan)] * len(run.steps) for run in runs]
    onsets = [onset(run.steps, run.test_accuracy, ONSET) for run in runs]
    by_family = ("seed", "family", "step")
    data = xr.Dataset(
        {
            "train_accuracy": (("seed", "step"), stacked("train_accuracy")),
            "test_accuracy": (("seed", "step"), stacked("test_accuracy")),
            "eigenvalues": (("seed", "step", "mode"), spectra),
            "first_block_overlap": (by_family, overlaps(lambda run: run.first_block)),
            "second_block_overlap": (by_family, second),
            "second_block_rate": (by_family, rates, {"units": "points per 10 epochs"}),
            "learned_block_overlap": (
                by_family,
                overlaps(lambda run: run.learned.overlaps if run.learned else missing),
            ),
            "learned_block": (("seed", "step", "end"), np.array(places, dtype=float)),
            "onset": (("seed",), [math.nan if each is None else each for each in onsets]),
        },
        coords={"seed": [run.task.seed for run in runs], "step": runs[0].steps, "family": list(FAMILIES)},
        attrs={"train_share": runs[0].task.train_share, "onset_at": ONSET, "modulus": runs[0].task.modulus},
    )
    return data.assign(_layers(runs)) if runs[0].layers else data


def _layers(runs: Sequence[MLPRun]) -> xr.Dataset:
    """Each layer's spectra, and its first window's overlaps, at the steps its kernel was read."""
    names = list(runs[0].layers)
    spectra = [[[reading.eigenvalues.numpy() for reading in run.layers[name]] for name in names] for run in runs]
    held = [
        [[[reading.block[family] for reading in run.layers[name]] for family in FAMILIES] for name in names]
        for run in runs
    ]
    return xr.Dataset(
        {
            "layer_eigenvalues": (("seed", "layer", "layer_step", "mode"), np.array(spectra)),
            "layer_overlap": (("seed", "layer", "family", "layer_step"), np.array(held)),
        },
        coords={"layer": names, "layer_step": runs[0].layer_steps},
    )


def superposition_dataset(runs: Sequence[SuperpositionRun]) -> xr.Dataset:
    """Spectra, trained and initial, and maps of modes by features, raw and normalised, by setting and seed (`run`)."""
    betas = list(runs[0].maps)
    maps = np.stack([np.stack([run.maps[beta].numpy() for beta in betas]) for run in runs])
    normal = np.stack([np.stack([column_normalised(run.maps[beta]).numpy() for beta in betas]) for run in runs])
    cliffs = np.full((len(runs), max(1, *(len(run.found) for run in runs))), math.nan)
    for row, run in zip(cliffs, runs):
        row[: len(run.found)] = run.found.positions.numpy()
    return xr.Dataset(
        {
            "eigenvalues": (("run", "mode"), np.stack([run.eigenvalues.numpy() for run in runs])),
            "initial_eigenvalues": (("run", "mode"), np.stack([run.initial.numpy() for run in runs])),
            "cliff": (("run", "cliff_number"), cliffs),
            "mode_feature": (("run", "beta", "feature", "top_mode"), maps),
            "mode_feature_normalised": (("run", "beta", "feature", "top_mode"), normal),
            "reconstructed": (("run",), [run.reconstructed for run in runs]),
        },
        coords={"run": [f"{run.setting.name}, seed {run.setting.seed}" for run in runs], "beta": betas},
    )


def transformer_dataset(run: TransformerRun) -> xr.Dataset:
    """Accuracies, the read-out's overlap and its rate over epochs; every tensor's spectrum and overlaps at the end."""
    spectra = np.full((len(run.tensors), max(len(each.eigenvalues) for each in run.tensors.values())), np.nan)
    for row, reading in zip(spectra, run.tensors.values()):
        row[: len(reading.eigenvalues)] = reading.eigenvalues.numpy()
    held = [[list(window.values()) for window in each.held.values()] for each in run.tensors.values()]
    first = next(iter(run.tensors.values())).held
    rate = 20 * rate_of_change(run.kernel_steps, run.sum_overlap).numpy()
    return xr.Dataset(
        {
            "train_accuracy": (("step",), run.train_accuracy),
            "test_accuracy": (("step",), run.test_accuracy),
            "sum_overlap": (("kernel_step",), run.sum_overlap),
            "sum_overlap_rate": (("kernel_step",), rate, {"units": "points per 20 epochs"}),
            "eigenvalues": (("layer", "mode"), spectra),
            "overlap": (("layer", "window", "family"), held),
        },
        coords={
            "step": run.steps,
            "kernel_step": run.kernel_steps,
            "layer": list(run.tensors),
            "window": list(first),
            "family": list(first[next(iter(first))]),
        },
        attrs={"key_frequencies": run.frequencies, "seed": run.task.seed},
    )
