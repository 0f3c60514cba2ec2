"""How far eigenfunctions fitted on a part of the examples are from those of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tangentlens.measures.eigenfunctions import Eigenfunctions
from tangentlens.measures.forward_moments import ForwardMoments


@dataclass(frozen=True)
class NystromError:
    """Distances between two decompositions of one feature map: from some examples, and from all of them.

    `operator` bounds the l2 distance of the eigenvalues relative to ||T||, `span` is the squared sine of the largest
    angle between the leading subspaces in L2(data): 0 when the leading modes span the same functions.
    """

    operator: float
    eigenvalues: float
    span: float
    modes: int


def nystrom_error(
    some: ForwardMoments, every: ForwardMoments, approximate: Eigenfunctions, exact: Eigenfunctions, *, modes: int
) -> NystromError:
    """Compare the modes fitted on some examples with the exact decomposition on all examples.

    Individual modes are not identifiable where eigenvalues coincide, so spans are compared, not modes; choose `modes`
    at a gap of the spectrum. Error bound: ||T - T_n|| of Rosasco, Belkin, De Vito (2010).
    """
    if modes > min(len(approximate.eigenvalues), len(exact.eigenvalues)):
        available = min(len(approximate.eigenvalues), len(exact.eigenvalues))
        raise ValueError(f"modes must be at most the {available} resolved ones, got {modes}")
    population = every.second_moment("features", "features")
    norm = torch.linalg.matrix_norm(population)
    operator = torch.linalg.matrix_norm(some.second_moment("features", "features") - population) / norm
    shared = min(len(approximate.eigenvalues), len(exact.eigenvalues))
    eigenvalues = torch.linalg.vector_norm(approximate.eigenvalues[:shared] - exact.eigenvalues[:shared]) / norm
    # L2(data) inner products of directions are taken with the moments of all examples
    leading = approximate.directions[:, :modes]
    gram = leading.T @ population @ leading
    whitening = torch.linalg.cholesky(gram)
    cosines = torch.linalg.svdvals(
        torch.linalg.solve_triangular(whitening, leading.T @ population @ exact.directions[:, :modes], upper=False)
    )
    return NystromError(float(operator), float(eigenvalues), float(1 - cosines.min().clamp(max=1) ** 2), modes)
