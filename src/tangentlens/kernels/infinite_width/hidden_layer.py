"""The one formula behind MLP, CNN and attention followed by an MLP: a hidden layer over mixtures of embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels.infinite_width.dual_activation import dual_activation
from tangentlens.kernels.infinite_width.quadrature import Elementwise


@dataclass(frozen=True)
class Deviations:
    """Standard deviations of the Gaussian initialisation; every layer divides by the root of its width besides.

    `hidden` is the hidden matrix, the filters, the token matrices or the input matrix of a recurrence; `recurrent` is
    read by the linear recurrence alone.
    """

    embedding: float = 1.0
    hidden: float = 1.0
    readout: float = 1.0
    recurrent: float = 1.0


UNIT = Deviations()


def hidden_layer_kernel(
    variance: Float[Tensor, "*#shape"],
    other_variance: Float[Tensor, "*#shape"],
    overlap: Float[Tensor, "*shape"],
    *,
    activation: str | Elementwise,
    deviations: Deviations,
) -> dict[str, Float[Tensor, "*shape"]]:
    """The kernel between two positions, split over readout, hidden and embedding gradients.

    A position reads a mixture sum_w q(w) e_w of embeddings, pre-activation W(sum q e)/sqrt d: overlap = <q, q'>,
    variance = <q, q>. With (u, z) Gaussian of covariance s_w^2 s_e^2 (variance, overlap; overlap, other_variance):
    readout E phi(u)phi(z), hidden s_v^2 s_e^2 overlap E phi'(u)phi'(z), embedding s_v^2 s_w^2 overlap E phi'(u)phi'(z)
    (sun2023, our derivation). At overlap 0 only the readout is left: that is the feature bias.
    """
    e, w, v = deviations.embedding**2, deviations.hidden**2, deviations.readout**2
    dual = dual_activation(activation)
    covariances = [(e * w * t).double() for t in (variance, other_variance, overlap)]
    slopes = overlap * dual.slope_product(*covariances)
    return {
        "readout": dual.product(*covariances),
        "hidden": v * e * slopes,
        "embedding": v * w * slopes,
    }


def total(groups: dict[str, Float[Tensor, "*shape"]]) -> Float[Tensor, "*shape"]:
    """The kernel of all parameters from its split."""
    return torch.stack(list(groups.values())).sum(0)
