"""How good the linearised network is: kernel regression around the trained network, on fresh inputs (lin2025 v1).

On 25,000 rows the regression goes through the modes of J J^T, all of which the dual gives: there are fewer parameters.
Regression around zero instead of around the network gives the same here up to the ridge: the network is homogeneous in
its parameters (W twice, b once), so its own outputs lie in the range of J.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tangentlens.kernels import entk_product
from tangentlens.kernels.top_spectrum import top_spectrum
from tangentlens.measures.linearised import LinearisationFidelity, linearisation_fidelity, prediction_from_modes
from tangentlens.studies.claims import Band, Claim, Verdict, judged_all
from tangentlens.studies.lin2025.superposition_model import (
    Superposition,
    sparse_inputs,
    trained_superposition,
)

RIDGE = 1e-4
FEW = 100  # examples: a fifth of the paper's


@dataclass(frozen=True)
class LinearisedRun:
    """Fidelity on fresh inputs, and the gap in accuracy (largest output against largest input), in points."""

    setting: Superposition
    fidelity: LinearisationFidelity
    accuracy_gap: float


def linearised_run(setting: Superposition) -> LinearisedRun:
    """Regress the network's own error on its training inputs, and correct its outputs on as many fresh ones."""
    model, _, inputs = trained_superposition(setting)
    fresh = sparse_inputs(setting, torch.Generator().manual_seed(10_000 + setting.seed))
    with torch.no_grad():
        residual, outputs = (inputs - model(inputs)).double(), model(fresh).double()
    size = sum(parameter.numel() for parameter in model.parameters())
    modes = top_spectrum(model, inputs, modes=size)
    cross = entk_product(model, fresh, inputs, dtype=torch.float64) @ modes.eigenvectors
    linear = prediction_from_modes(
        cross.detach(), modes.eigenvalues, modes.eigenvectors, residual.flatten(), outputs.flatten(), ridge=RIDGE
    ).view_as(outputs)
    right = fresh.argmax(1)
    gap = (outputs.argmax(1) == right).double().mean() - (linear.argmax(1) == right).double().mean()
    return LinearisedRun(setting, linearisation_fidelity(linear, outputs, fresh), 100 * float(gap))


NOTEBOOK = "notebook, linearisation check (v1)"
CLAIMS = (
    Claim("T7.R2", "m=10, S=0.9: R^2 of the linearised network", NOTEBOOK, 0.959, "author's code", Band(low=0.8)),
    Claim("T7.loss", "its loss over the network's", NOTEBOOK, 0.988, "author's code", Band(high=1.1)),
    Claim("T7.gap", "accuracy lost", NOTEBOOK, 1.2, "author's code", Band(high=2), "points"),
    Claim("T7.m5", "m=5: R^2 below the rule of thumb", NOTEBOOK, 0.576, "author's code", Band(high=0.8)),
)


def linearised_verdicts(
    good: Sequence[LinearisedRun], bad: Sequence[LinearisedRun], few: Sequence[LinearisedRun] = ()
) -> list[Verdict]:
    """The main case, where the author's rule of thumb (R^2 >= 0.8, loss ratio <= 1.1, gap <= 2 points) is met, and one
    where it is not; `few` is that second network on few examples, shown beside it."""
    values = {
        "T7.R2": [run.fidelity.r_squared for run in good],
        "T7.loss": [run.fidelity.loss_ratio for run in good],
        "T7.gap": [run.accuracy_gap for run in good],
        "T7.m5": [run.fidelity.r_squared for run in bad],
    }
    notes = {
        "T7.R2": f"on fresh inputs, ridge {RIDGE:g}; accepted: the author's rule of thumb",
        "T7.m5": "of this setting only m=5 is known to us; n=50, S=0.9 and 500 examples are our guess",
    }
    found = sorted(run.fidelity.r_squared for run in few)
    baselines = {"T7.m5": f"on {FEW} examples {found[0]:.2f} .. {found[-1]:.2f}"} if found else {}
    return judged_all(CLAIMS, values, baselines, notes)
