"""The cause of the ansatz: a weight's left singular vectors turning towards the eigenvectors of its tangent kernel.

F = W^T W and G = W^T K W share their eigenvectors exactly when the left singular vectors of W are eigenvectors of K.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.alignment import in_float64


@dataclass(frozen=True)
class AlignmentView:
    """Directions of a layer's output: as the weight writes them and as the loss's gradients see them, largest first.

    `overlaps[i, j]` = <u_i, q_j>^2 of left singular vector u_i and kernel eigenvector q_j; by chance each is 1/unit.
    `sensitivity[i]` = u_i^T K u_i in units of the mean eigenvalue of K; by chance each is 1.
    """

    singular_values: Float[Tensor, "mode"]
    eigenvalues: Float[Tensor, "unit"]
    overlaps: Float[Tensor, "mode unit"]
    sensitivity: Float[Tensor, "mode"]


def alignment_view(weight: Float[Tensor, "unit input"], ptk_covariance: Float[Tensor, "unit unit"]) -> AlignmentView:
    """Overlaps of the weight's left singular vectors with the eigenvectors of its PTK covariance.

    Within a group of equal eigenvalues or singular values single rows are arbitrary; sums over the group are not.
    """
    weight, kernel = in_float64(weight, ptk_covariance)
    left, singular, _ = torch.linalg.svd(weight, full_matrices=False)
    values, vectors = (part.flip(-1) for part in torch.linalg.eigh((kernel + kernel.T) / 2))  # eigh sorts ascending
    overlaps = (left.T @ vectors) ** 2
    return AlignmentView(singular, values, overlaps, overlaps @ values / values.mean())


def top_overlap(view: AlignmentView, modes: int) -> Float[Tensor, ""]:
    """How much of the first left singular vectors lies in as many first kernel eigenvectors; by chance modes/unit."""
    return view.overlaps[:modes, :modes].sum() / min(modes, *view.overlaps.shape)


def kernel_drift(
    ptk_covariance: Float[Tensor, "unit unit"], initial_ptk_covariance: Float[Tensor, "unit unit"], *, modes: int = 5
) -> dict[str, Float[Tensor, ""]]:
    """How far K has moved since initialisation: its direction, its scale, and the span of its leading eigenvectors.

    `cosine` = <K, K_0> / |K||K_0|, `scale` = tr K / tr K_0, `top_overlap` = |Q^T Q_0|^2 / modes (chance: modes/unit).
    A kernel that turns faster than the weights is a moving target, which they cannot align to.
    """
    kernel, initial = ptk_covariance.double(), initial_ptk_covariance.to(ptk_covariance.device).double()
    modes = min(modes, len(kernel))
    top, initial_top = (torch.linalg.eigh(matrix).eigenvectors[:, -modes:] for matrix in (kernel, initial))
    return {
        "cosine": (kernel * initial).sum() / (kernel.norm() * initial.norm()),
        "scale": kernel.trace() / initial.trace(),
        "top_overlap": (top.T @ initial_top).square().sum() / modes,
    }
