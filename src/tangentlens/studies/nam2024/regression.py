"""A function of one variable, learned while its eigenfunctions are watched."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels.features import features
from tangentlens.measures.eigenfunctions import eigenfunctions
from tangentlens.measures.forward_moments import forward_moments
from tangentlens.studies.nam2024.digits import seeded
from tangentlens.studies.nam2024.looking import Look, audience, look
from tangentlens.studies.nam2024.material import Material
from tangentlens.studies.nam2024.models import fully_connected
from tangentlens.studies.nam2024.training import trained

SHOWN = 6
PAUSES = (0, 10, 30, 100, 300, 1000, 3000)


@dataclass(frozen=True, eq=False)
class Curve:
    """The strongest eigenfunctions on the grid at one step, each with the sign that continues the step before."""

    step: int
    grid: Float[Tensor, "example"]
    target: Float[Tensor, "example"]
    learned: Float[Tensor, "example"]
    modes: Float[Tensor, "example mode"]


def regression(material: Material, seed: int) -> tuple[list[Look], list[Curve]]:
    """sin(2 pi x) on a grid, squared error, Adam."""
    sizes = material.sizes
    x = torch.linspace(-1, 1, sizes.regression_points, device=material.device)[:, None]
    y = torch.sin(2 * math.pi * x)
    model = seeded(seed, material, lambda: fully_connected(1, sizes.regression_widths, 1))
    at = audience(model, x, y)
    looks: list[Look] = []
    curves: list[Curve] = []
    for step in trained(model, x, y, replace(sizes.regression, seed=seed), PAUSES):
        looks.append(look(model, at, step, initial=looks[0].distance if looks else None))
        found = features(model, x)
        modes = eigenfunctions(forward_moments(found.values))(found.values)[:, :SHOWN]
        if curves:
            shared = min(modes.shape[1], curves[-1].modes.shape[1])
            turn = (modes[:, :shared] * curves[-1].modes[:, :shared]).sum(0) < 0
            modes[:, :shared][:, turn] *= -1
        curves.append(Curve(step, x[:, 0], y[:, 0], found.outputs[:, 0], modes))
    return looks, curves
