"""The prediction of the network linearised at its parameters, and how far it is from the network itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def linearised_prediction(
    kernel: Float[Tensor, "row row"],
    cross_kernel: Float[Tensor, "other row"],
    residual: Float[Tensor, "row"],
    start: Float[Tensor, "other"] | None = None,
    *,
    ridge: float = 1e-6,
) -> Float[Tensor, "other"]:
    """f(x) + K(x, X) (K + ridge I)^-1 (y - f(X)): regression with the kernel, from the network's own outputs.

    `residual` is y - f(X) and `start` f(x), rows n*C + c flattened; without `start` it is kernel regression around
    zero, and `residual` is then y itself. Cost n^3.
    """
    matrix = kernel.to(torch.float64)
    identity = torch.eye(len(matrix), dtype=torch.float64, device=matrix.device)
    weights = torch.linalg.solve((matrix + matrix.T) / 2 + ridge * identity, residual.to(matrix))
    correction = cross_kernel.to(matrix) @ weights
    return correction if start is None else start.to(matrix) + correction


def prediction_from_modes(
    cross_images: Float[Tensor, "other mode"],
    eigenvalues: Float[Tensor, "mode"],
    eigenvectors: Float[Tensor, "row mode"],
    residual: Float[Tensor, "row"],
    start: Float[Tensor, "other"],
    *,
    ridge: float = 1e-6,
) -> Float[Tensor, "other"]:
    """The same prediction from all modes of the kernel above zero, given K(x, X) v for each: no solve, no kernel
    formed.

    What a residual has outside their span lies in the null space of J^T and moves no prediction.
    """
    along = eigenvectors.T @ residual.to(eigenvectors)
    return start.to(eigenvectors) + cross_images.to(eigenvectors) @ (along / (eigenvalues + ridge))


@dataclass(frozen=True)
class LinearisationFidelity:
    """R^2 of the linearised outputs against the network's, and its loss over the network's (1 = as good)."""

    r_squared: float
    loss_ratio: float


def linearisation_fidelity(
    linearised: Float[Tensor, "*row"], network: Float[Tensor, "*row"], targets: Float[Tensor, "*row"]
) -> LinearisationFidelity:
    """Compare a linearised prediction with the network it stands for; squared losses."""
    linearised, network, targets = (each.to(torch.float64) for each in (linearised, network, targets))
    unexplained = (network - linearised).square().sum()
    variance = (network - network.mean()).square().sum()  # one mean over all outputs, as in the paper's code
    ratio = (linearised - targets).square().mean() / (network - targets).square().mean()
    return LinearisationFidelity(float(1 - unexplained / variance), float(ratio))
