"""Eigenfunctions and eigenvalues of the forward feature operator T[u](x') = E_x[<Phi(x'), Phi(x)> u(x)]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from tangentlens.measures.forward_moments import ForwardMoments


@dataclass(frozen=True)
class Eigenfunctions:
    """Modes e_k(x) = <directions_k, Phi(x)>, orthonormal over the examples they come from, strongest first.

    `eigenvalues` are those of T, `unresolved` counts the modes left out because they lie below the resolution.
    Where eigenvalues nearly coincide only the span of their modes means something.
    """

    eigenvalues: Float64[Tensor, "mode"]
    directions: Float64[Tensor, "unit mode"]
    unresolved: int = 0

    def __call__(self, features: Float[Tensor, "example unit"]) -> Float64[Tensor, "example mode"]:
        """The modes at any inputs, given their features: the Nystrom extension."""
        return features.to(self.directions) @ self.directions


def eigenfunctions(moments: ForwardMoments, *, tolerance: float | None = None) -> Eigenfunctions:
    """Diagonalise the (uncentred) feature operator: S = E[Phi Phi^T] = V diag(rho) V^T, e_k = <v_k, Phi> / sqrt(rho_k).

    arXiv 2410.04264 v1-v3, where the same modes are approximated from n > p samples. Modes with
    rho_k <= tolerance * rho_1 are left out: one would divide by noise. Cost: units^3.
    """
    cutoff = mode_tolerance(moments) if tolerance is None else tolerance
    eigenvalues, vectors = symmetric_modes(moments.second_moment("features", "features"))
    kept = int((eigenvalues > cutoff * eigenvalues[:1].clamp_min(0)).sum())
    rho = eigenvalues[:kept]
    return Eigenfunctions(rho, vectors[:, :kept] / rho.sqrt(), unresolved=len(eigenvalues) - kept)


def eigenfunctions_dual(features: Float[Tensor, "example unit"], *, tolerance: float | None = None) -> Eigenfunctions:
    """The same modes from the example-by-example Gram matrix, for more units than examples.

    e_k(x) = sum_i u_ki <Phi(x), Phi(x_i)> / (sqrt(n) rho_k) with u_k an eigenvector of (1/n) Phi Phi^T.
    Cost: n^2 units + n^3.
    """
    values = features.double()
    cutoff = 1e-10 if tolerance is None else tolerance
    eigenvalues, vectors = symmetric_modes(values @ values.T / len(values))
    kept = int((eigenvalues > cutoff * eigenvalues[:1].clamp_min(0)).sum())
    rho = eigenvalues[:kept]
    directions = values.T @ vectors[:, :kept] / (len(values) ** 0.5 * rho)
    return Eigenfunctions(rho, directions, unresolved=min(values.shape) - kept)


def isometric_features(features: Float[Tensor, "example unit"]) -> Float64[Tensor, "example mode"]:
    """Features of at most as many units as there are examples, with exactly the same Gram matrix.

    Every in-sample measure depends on features through their Gram matrix alone, so a flattened image layer of a
    hundred thousand units can be measured on a few thousand examples without approximation. Cost: n^2 units + n^3.
    """
    values = features.double()
    if values.shape[1] <= values.shape[0]:
        return values
    eigenvalues, vectors = symmetric_modes(values @ values.T)
    return vectors * eigenvalues.clamp_min(0).sqrt()


def relative_eigenvalues(eigenvalues: Float[Tensor, "mode"]) -> Float[Tensor, "mode"]:
    """rho_k / rho_1: how strong each feature is beside the strongest.

    >>> relative_eigenvalues(torch.tensor([4.0, 1.0])).tolist()
    [1.0, 0.25]
    """
    return eigenvalues / eigenvalues[:1]


def mode_tolerance(moments: ForwardMoments) -> float:
    """The relative eigenvalue below which a mode is rounding: 1e-10 for float64 features, 1e-6 for coarser ones."""
    return 1e-10 if moments.resolution < 1e-12 else 1e-6


def symmetric_modes(
    matrix: Float64[Tensor, "row row"],
) -> tuple[Float64[Tensor, "mode"], Float64[Tensor, "row mode"]]:
    """Eigenvalues and eigenvectors of a symmetric matrix, largest first."""
    # eigh sorts ascending, and everything here reads from the strongest mode down
    eigenvalues, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return eigenvalues.flip(0), vectors.flip(1)
