"""The results as labelled data: what the three panels and richness over time are drawn from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from tangentlens.studies.nam2024.looking import Look
from tangentlens.studies.nam2024.regression import Curve
from tangentlens.studies.nam2024.results import EXPERIMENTS, Results, all_arms

MODES = 64

NUMBERS: dict[str, Callable[[Look], float | None]] = {
    "richness": lambda look: look.distance,
    "richness_robust": lambda look: look.forward.robust.distance,
    "richness_corrected": lambda look: look.forward.interval.corrected if look.forward.interval else None,
    "richness_error": lambda look: look.forward.interval.standard_error if look.forward.interval else None,
    "richness_isotropic": lambda look: look.forward.isotropic,
    "richness_random_head": lambda look: look.forward.random_head,
    "inside_share": lambda look: look.forward.paper.share,
    "participation_ratio": lambda look: look.forward.paper.participation,
    "accuracy": lambda look: look.accuracy,
    "known": lambda look: look.known,
    "parameter_norm": lambda look: look.parameter_norm,
    "initial_alignment": lambda look: look.forward.similarity,
    "nc1": lambda look: look.forward.collapse,
    "effective_dimension": lambda look: look.forward.eigenvalue_dimension,
    "effective_dimension_quality": lambda look: look.forward.quality_dimension,
    "effective_dimension_utilisation": lambda look: look.forward.utilisation_dimension,
}

CURVES = ("relative_eigenvalues", "cumulative_quality", "cumulative_utilisation")


def records(results: Results) -> dict[str, xr.Dataset]:
    """One dataset per experiment over (seed, arm, look, mode), and the eigenfunctions of the regression."""
    found = {name: _dataset(results, name) for name in EXPERIMENTS if getattr(results, name)}
    if results.regression:
        found["eigenfunctions"] = _eigenfunctions([curves for _, curves in results.regression])
    if results.downscaled:
        for name, part in (("tangent_kernel_change", "changes"), ("training_targets_left", "left")):
            values = [list(getattr(seed, part).values()) for seed in results.downscaled]
            found["downscaled"][name] = (("seed", "arm"), np.array(values))
    return found


def _dataset(results: Results, experiment: str) -> xr.Dataset:
    runs = [(seed, arm, looks) for name, seed, arm, looks in all_arms(results) if name == experiment]
    seeds, arms = sorted({seed for seed, _, _ in runs}), list(dict.fromkeys(arm for _, arm, _ in runs))
    length = max(len(looks) for _, _, looks in runs)
    shape = (len(seeds), len(arms), length)
    data = {name: np.full(shape, np.nan) for name in NUMBERS}
    curves = {name: np.full((*shape, MODES), np.nan) for name in CURVES}
    steps = np.full(shape, -1)
    regimes = np.full(shape, "", dtype="U24")
    for seed, arm, looks in runs:
        for place, look in enumerate(looks):
            at = (seeds.index(seed), arms.index(arm), place)
            steps[at], regimes[at] = look.step, look.forward.regime.name
            for name, value in NUMBERS.items():
                number = value(look)
                data[name][at] = np.nan if number is None else number
            for name in CURVES:
                curve = getattr(look.forward, name)
                if curve is not None:
                    curves[name][at][: len(curve[:MODES])] = curve[:MODES].cpu().numpy()
    axes = ("seed", "arm", "look")
    return xr.Dataset(
        {
            **{name: (axes, values) for name, values in data.items()},
            **{name: ((*axes, "mode"), values) for name, values in curves.items()},
            "regime": (axes, regimes),
        },
        coords={"seed": seeds, "arm": arms, "step": (axes, steps), "mode": np.arange(1, MODES + 1)},
    )


def _eigenfunctions(seeds: list[list[Curve]]) -> xr.Dataset:
    count = min(curve.modes.shape[1] for curves in seeds for curve in curves)
    values = np.array([[curve.modes[:, :count].cpu().numpy() for curve in curves] for curves in seeds])
    learned = np.array([[curve.learned.cpu().numpy() for curve in curves] for curves in seeds])
    first = seeds[0]
    return xr.Dataset(
        {
            "eigenfunction": (("seed", "step", "point", "mode"), values),
            "learned": (("seed", "step", "point"), learned),
            "target": (("point",), first[0].target.cpu().numpy()),
        },
        coords={
            "seed": np.arange(len(seeds)),
            "step": [curve.step for curve in first],
            "point": first[0].grid.cpu().numpy(),
            "mode": np.arange(1, count + 1),
        },
    )
