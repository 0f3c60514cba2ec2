"""Toy models of superposition: where the spectrum falls, and which features its modes are (lin2025 v1-v3).

Kernel: all outputs of all examples, 500 x 50 = 25,000 rows, through its dual side (550 or 2,050 parameters).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels.spectra import Spectrum
from tangentlens.kernels.top_spectrum import top_spectrum
from tangentlens.measures.cliffs import Cliffs, cliffs, log_gaps
from tangentlens.measures.families import superposition_features
from tangentlens.measures.mode_map import mode_map
from tangentlens.studies.lin2025.superposition_model import (
    Superposition,
    TiedReconstruction,
    importances,
    trained_superposition,
)

MODES = 80
BETAS = (0.0, 0.3, 1.0)
SETTINGS = ((10, 0.3), (10, 0.9), (40, 0.9))


@dataclass(eq=False)
class SuperpositionRun:
    """One trained network: its spectrum unrescaled and at initialisation, and its map of modes by features at each
    beta."""

    setting: Superposition
    reconstructed: int
    eigenvalues: Float[Tensor, "mode"]
    initial: Float[Tensor, "mode"]
    found: Cliffs
    maps: dict[float, Float[Tensor, "feature mode"]] = field(default_factory=dict)

    def ratio(self, position: int) -> float:
        return float(self.eigenvalues[position - 1] / self.eigenvalues[position])

    def earlier_drop(self) -> int:
        """Position of the largest gap before the one at the number of features."""
        return int(log_gaps(self.eigenvalues)[: self.setting.features - 1].argmax()) + 1


def superposition_run(setting: Superposition) -> SuperpositionRun:
    model, initial, inputs = trained_superposition(setting)
    plain = importance_scaled(model, inputs, setting, 0.0)
    at_start = importance_scaled(initial, inputs, setting, 0.0)
    squares = model.weight.detach().square().sum(0)
    run = SuperpositionRun(
        setting,
        int((squares >= 0.75).sum()),
        plain.eigenvalues,
        at_start.eigenvalues,
        cliffs(plain.eigenvalues, at_start.eigenvalues),
    )
    features = superposition_features(inputs)
    for beta in BETAS:
        modes = plain if beta == 0 else importance_scaled(model, inputs, setting, beta)
        run.maps[beta] = mode_map(modes.eigenvectors, features)[:, : setting.features]
    return run


def importance_scaled(
    model: TiedReconstruction, inputs: Float[Tensor, "example feature"], setting: Superposition, beta: float
) -> Spectrum:
    """Modes of D^(beta/2) K D^(beta/2), D the importances: the kernel of the outputs scaled by I^(beta/2)."""
    scale = importances(setting) ** (beta / 2)
    return top_spectrum(model, inputs, modes=MODES, outputs=lambda raw: raw * scale.to(raw))
