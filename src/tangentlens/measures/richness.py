"""D_LR: how far the features are from the smallest, equally strong set that expresses the learned function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from tangentlens.measures.eigenfunctions import symmetric_modes
from tangentlens.measures.forward_moments import ForwardMoments, constant

Convention = Literal["paper", "robust"]
CONVENTIONS: tuple[Convention, ...] = ("paper", "robust")

# singular values of the outputs below this share of the largest are no direction of the learned function
RANK_TOLERANCE: dict[Convention, float] = {"paper": 1e-6, "robust": 1e-3}


@dataclass(frozen=True)
class Richness:
    """One reading of D_LR and what it is made of: 1 - distance = share * sqrt(participation / centred_rank).

    `distance` is D_LR: 0 richest, 1 laziest. `share` (tau) is the part of the feature variance inside the span of the
    outputs: below 1, unused features remain. `participation` is the number of equally strong features the variance
    amounts to: below the rank, the used features are unequal. `rank` counts the directions kept of the outputs, whose
    `singular_values` (root mean square, largest first) are those of the convention.
    """

    distance: float
    convention: Convention
    share: float
    participation: float
    rank: int
    centred_rank: float
    singular_values: Float64[Tensor, "mode"]


def richness(
    moments: ForwardMoments, convention: Convention = "paper", *, tolerance: float | None = None,
    classification: bool | None = None,
) -> Richness:  # fmt: skip
    """D_LR = 1 - CKA(T, T_MP), with T_MP[u] = a1 <1|u> 1 + a2 P_H[u] and H the span of the outputs.

    arXiv 2410.04264 v3, Def. 1, as secondary accounts give it. It uses no labels, no initial network and no accuracy;
    a1 and a2 cancel. `"paper"` is the literal reading: project on the uncentred outputs, then centre (the other order
    scores perfect collapse 1 - sqrt((C-1)/C)). `"robust"` takes H = span{1, outputs}, so that offsets of the outputs do
    not matter, and drops directions below a relative tolerance; for classification it first subtracts the mean over
    classes of each example, a direction the classifier does not use. `classification=None` decides by whether the
    targets are one-hot. Cost: units^2 outputs + outputs^3.
    """
    if convention not in RANK_TOLERANCE:
        raise ValueError(f"convention is 'paper' or 'robust', got {convention!r}")
    basis, singular_values = learned_directions(moments, convention, tolerance=tolerance, classification=classification)
    # then centre: covariances of the projected outputs
    projected = basis.T @ moments.covariance("outputs", "features")
    centred_span = basis.T @ moments.covariance("outputs", "outputs") @ basis
    return _reading(moments, projected, centred_span, convention, singular_values)


def learned_directions(
    moments: ForwardMoments, convention: Convention, *, tolerance: float | None = None,
    classification: bool | None = None,
) -> tuple[Float64[Tensor, "output mode"], Float64[Tensor, "output"]]:  # fmt: skip
    """The independent directions of the outputs: combinations that are orthonormal functions, and all singular values.

    Literally, of the outputs as they are; in the robust convention of the outputs without their mean over examples and,
    for classification, over classes, since the constant belongs to the span anyway.
    """
    cutoff = RANK_TOLERANCE[convention] if tolerance is None else tolerance
    if classification is None:
        classification = one_hot_targets(moments)
    gauge = _gauge(moments, classification and convention == "robust")
    gram = (moments.covariance if convention == "robust" else moments.second_moment)("outputs", "outputs")
    squares, vectors = symmetric_modes(gauge @ gram @ gauge)
    singular_values = squares.clamp_min(0).sqrt()
    kept = singular_values > max(cutoff * float(singular_values[0]), torch.finfo(torch.float64).tiny ** 0.5)
    # project first: this basis is orthonormal before centring
    return gauge @ vectors[:, kept] / singular_values[kept], singular_values


def one_hot_targets(moments: ForwardMoments) -> bool:
    """Whether the targets are class indicators, up to one common factor; moments alone show it.

    >>> from tangentlens.measures.forward_moments import forward_moments
    >>> one_hot_targets(forward_moments(torch.rand(3, 2), targets=3 * torch.eye(3)))
    True
    """
    if moments.width("targets") < 2:
        return False
    gram, sums = moments.total("targets", "targets"), moments.total("one", "targets")[0]
    scale = float(sums.sum()) / moments.weight
    return scale > 0 and torch.allclose(gram, scale * sums.diag(), rtol=1e-6, atol=1e-9 * scale**2 * moments.weight)


def _gauge(moments: ForwardMoments, classification: bool) -> Tensor:
    """The projection that removes the mean over classes of each example's outputs, or nothing."""
    count = moments.width("outputs")
    identity = torch.eye(count, dtype=moments.sums.dtype, device=moments.sums.device)
    return identity - 1 / count if classification and count > 1 else identity


def _reading(
    moments: ForwardMoments, projected: Tensor, centred_span: Tensor, convention: Convention, singular_values: Tensor
) -> Richness:
    features = moments.covariance("features", "features")
    variance, strength = float(features.trace()), float(torch.linalg.matrix_norm(features))
    inside = float(projected.square().sum())
    span = float(torch.linalg.matrix_norm(centred_span)) if centred_span.numel() else 0.0
    # constant outputs or constant features (a dead layer) leave nothing to compare, and rounding must not fill the gap
    if span < 1e-8 or constant(moments, "features"):
        return Richness(math.nan, convention, math.nan, math.nan, 0, 0.0, singular_values)
    return Richness(
        distance=1 - inside / (strength * span),
        convention=convention,
        share=inside / variance,
        participation=(variance / strength) ** 2,
        rank=len(centred_span),
        centred_rank=span**2,
        singular_values=singular_values,
    )
