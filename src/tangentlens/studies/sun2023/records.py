"""The runs of the study as labelled data, for figures and for the reader's own questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tangentlens.studies.sun2023.formulas import Ratios
from tangentlens.studies.sun2023.imbalance import BiasRun
from tangentlens.studies.sun2023.lazy import LazyRun
from tangentlens.studies.sun2023.order import OrderRun
from tangentlens.studies.sun2023.reviews import Looks

READINGS = ("correlation", "relative_error", "group_correlation", "uncentred_correlation", "counting_correlation",
            "empirical_correlation", "signs")  # fmt: skip

if TYPE_CHECKING:
    import xarray as xr


def ratio_record(found: Sequence[Ratios]) -> xr.Dataset:
    """Empirical over closed-form kernels (row, seed), a row for each architecture and width."""
    import xarray as xr

    return xr.Dataset(
        {
            "diagonal": (("row", "seed"), np.stack([one.diagonal.numpy() for one in found])),
            "between": (("row", "seed"), np.stack([one.between.numpy() for one in found])),
        },
        {"architecture": ("row", [one.architecture for one in found]), "width": ("row", [one.width for one in found])},
    )


def lazy_record(runs: Sequence[LazyRun]) -> xr.Dataset:
    """Trained and predicted word scores (row, token), a row for each activation, width and seed."""
    import xarray as xr

    def column(name: str) -> tuple[str, list[float]]:
        return "row", [getattr(run, name) for run in runs]

    variables = {
        "trained": (("row", "token"), np.stack([run.trained.numpy() for run in runs])),
        "predicted": (("row", "token"), np.stack([run.predicted.numpy() for run in runs])),
        **{name: column(name) for name in READINGS},
        "kernel_change": ("row", [run.drift.change for run in runs]),
        "kernel_alignment": ("row", [run.drift.alignment for run in runs]),
    }
    return xr.Dataset(variables, {name: column(name) for name in ("activation", "width", "seed")})


def bias_record(runs: Mapping[str, Sequence[BiasRun]]) -> xr.Dataset:
    """Readings (setting, seed, step) and word scores (setting, seed, step, token)."""
    import xarray as xr

    first = next(iter(runs.values()))[0]
    steps = list(first.asymmetry)

    def table(read: object) -> np.ndarray:
        return np.array([[[read(run, step) for step in steps] for run in found] for found in runs.values()])  # type: ignore[operator]

    dims = ("setting", "seed", "step")
    return xr.Dataset(
        {
            "asymmetry": (dims, table(lambda run, step: run.asymmetry[step])),
            "one_signed": (dims, table(lambda run, step: run.one_signed[step])),
            "kernel_change": (dims, table(lambda run, step: run.drift[step].change)),
            "kernel_alignment": (dims, table(lambda run, step: run.drift[step].alignment)),
            "scores": ((*dims, "token"), table(lambda run, step: run.scores[step].numpy())),
        },
        {"setting": list(runs), "step": steps},
    )


def order_record(runs: Mapping[tuple[str, str], Sequence[OrderRun]]) -> xr.Dataset:
    """Test accuracies (task, architecture, seed), and the share of right signs (architecture, seed, group)."""
    import xarray as xr

    tasks, names = (list(dict.fromkeys(key[place] for key in runs)) for place in (0, 1))
    accuracy = [[[run.accuracy[-1] for run in runs[task, name]] for name in names] for task in tasks]
    negation = [[run.grids[-1].right.numpy() for run in runs["negation", name]] for name in names]
    additive = [[run.grids[-1].additive_right.numpy() for run in runs["negation", name]] for name in names]
    grid = ("architecture", "seed", "group")
    return xr.Dataset(
        {
            "accuracy": (("task", "architecture", "seed"), np.array(accuracy)),
            "negation": (grid, np.array(negation)),
            "negation_additive": (grid, np.array(additive)),
        },
        {"task": tasks, "architecture": names, "group": ["adj+", "not adj+", "adj-", "not adj-"]},
    )


def review_record(runs: Sequence[Looks]) -> xr.Dataset:
    """Readings (seed, epoch) and word scores by side (seed, epoch, positive | negative | neutral)."""
    import xarray as xr

    epochs = list(runs[0].positive)
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        side: (
            ("seed", "epoch", side),
            np.array([[getattr(run, side)[epoch].numpy() for epoch in epochs] for run in runs]),
        )
        for side in ("positive", "negative", "neutral")
    }
    for name in ("spearman", "train", "test", "one_signed"):
        variables[name] = (
            ("seed", "epoch"),
            np.array([[getattr(run, name)[epoch] for epoch in epochs] for run in runs]),
        )
    change = [[run.drift[epoch].change for epoch in epochs] for run in runs]
    return xr.Dataset({**variables, "kernel_change": (("seed", "epoch"), np.array(change))}, {"epoch": epochs})
