"""The study's measurements as labelled data, from which its figures are drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr

from tangentlens.studies.lin2025.modular_mlp import FAMILIES, MLPRun
from tangentlens.studies.lin2025.modular_transformer import TransformerRun
from tangentlens.studies.lin2025.superposition import SuperpositionRun


def mlp_dataset(runs: Sequence[MLPRun]) -> xr.Dataset:
    """Accuracies, spectra and the overlaps of the first two blocks, over seeds and epochs."""

    def stacked(name: str) -> np.ndarray:
        return np.array([getattr(run, name) for run in runs], dtype=float)

    def overlaps(name: str) -> np.ndarray:
        return np.array([[getattr(run, name)[family] for family in FAMILIES] for run in runs], dtype=float)

    spectra = np.stack([torch.stack(run.eigenvalues).numpy() for run in runs])
    return xr.Dataset(
        {
            "train_accuracy": (("seed", "step"), stacked("train_accuracy")),
            "test_accuracy": (("seed", "step"), stacked("test_accuracy")),
            "eigenvalues": (("seed", "step", "mode"), spectra),
            "first_block_overlap": (("seed", "family", "step"), overlaps("first_block")),
            "second_block_overlap": (("seed", "family", "step"), overlaps("second_block")),
        },
        coords={"seed": [run.task.seed for run in runs], "step": runs[0].steps, "family": list(FAMILIES)},
        attrs={"train_share": runs[0].task.train_share},
    )


def superposition_dataset(runs: Sequence[SuperpositionRun]) -> xr.Dataset:
    """Spectra, trained and initial, and maps of modes by features; `run` labels setting and seed."""
    betas = list(runs[0].maps)
    maps = np.stack([np.stack([run.maps[beta].numpy() for beta in betas]) for run in runs])
    return xr.Dataset(
        {
            "eigenvalues": (("run", "mode"), np.stack([run.eigenvalues.numpy() for run in runs])),
            "initial_eigenvalues": (("run", "mode"), np.stack([run.initial.numpy() for run in runs])),
            "mode_feature": (("run", "beta", "feature", "top_mode"), maps),
            "reconstructed": (("run",), [run.reconstructed for run in runs]),
        },
        coords={"run": [f"{run.setting.name}, seed {run.setting.seed}" for run in runs], "beta": betas},
    )


def transformer_dataset(run: TransformerRun) -> xr.Dataset:
    """Accuracies and the read-out's overlap over epochs, and every tensor's spectrum at the end."""
    spectra = np.full((len(run.tensors), max(len(each.eigenvalues) for each in run.tensors.values())), np.nan)
    for row, reading in zip(spectra, run.tensors.values()):
        row[: len(reading.eigenvalues)] = reading.eigenvalues.numpy()
    return xr.Dataset(
        {
            "train_accuracy": (("step",), run.train_accuracy),
            "test_accuracy": (("step",), run.test_accuracy),
            "sum_overlap": (("kernel_step",), run.sum_overlap),
            "eigenvalues": (("layer", "mode"), spectra),
        },
        coords={"step": run.steps, "kernel_step": run.kernel_steps, "layer": list(run.tensors)},
        attrs={"key_frequencies": run.frequencies, "seed": run.task.seed},
    )
