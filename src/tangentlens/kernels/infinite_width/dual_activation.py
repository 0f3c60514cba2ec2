"""What an activation becomes when infinitely many units share it: three functions of pre-activation covariances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tangentlens.kernels.infinite_width.quadrature import Elementwise, gaussian_mean, gaussian_pair_mean, slope

PairMean = Callable[
    [Float[Tensor, "*shape"], Float[Tensor, "*shape"], Float[Tensor, "*shape"]], Float[Tensor, "*shape"]
]


@dataclass(frozen=True)
class DualActivation:
    """E phi(u), E phi(u) phi(z) and E phi'(u) phi'(z) for centred Gaussian (u, z).

    `product` and `slope_product` take (variance of u, variance of z, covariance). By Price's theorem the second is the
    derivative of the first in the covariance, which is how the closed forms are tested.
    """

    name: str
    mean: Callable[[Float[Tensor, "*shape"]], Float[Tensor, "*shape"]]
    product: PairMean
    slope_product: PairMean
    how: str


def dual_activation(activation: str | Elementwise, *, closed_form: bool = True) -> DualActivation:
    """The dual of an activation, in closed form where one is known and by quadrature otherwise.

    ReLU: the arc-cosine kernels of degree 1 and 0 (Cho & Saul 2009). erf: the arc-sine kernel (Williams 1997). GeLU: by
    Gaussian integration by parts of E[u z 1(g < u) 1(h < z)]. tanh, SiLU, sigmoid and any callable: quadrature, which
    assumes that the function is smooth on both sides of zero.

    >>> relu = dual_activation("relu")
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> [round(x.item(), 4) for x in (relu.mean(one), relu.product(one, one, one))]
    [0.3989, 0.5]
    """
    if isinstance(activation, str):
        name = activation.lower()
        if name not in ACTIVATIONS:
            known = ", ".join(sorted(ACTIVATIONS))
            raise ValueError(f"unknown activation {activation!r}; known by name: {known}; or pass the function itself")
        if closed_form and name in CLOSED_FORMS:
            return CLOSED_FORMS[name]
        return _by_quadrature(name, ACTIVATIONS[name])
    return _by_quadrature(getattr(activation, "__name__", type(activation).__name__), activation)


def _by_quadrature(name: str, function: Elementwise) -> DualActivation:
    derivative = slope(function)
    return DualActivation(
        name,
        lambda variance: gaussian_mean(function, variance),
        lambda v, w, c: gaussian_pair_mean(function, function, v, w, c),
        lambda v, w, c: gaussian_pair_mean(derivative, derivative, v, w, c),
        "quadrature",
    )


def _angle(v: Tensor, w: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The angle whose cosine is the correlation, and the product of the two deviations."""
    scale = (v * w).sqrt()
    cosine = torch.where(scale > 0, c / scale.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    return torch.arccos(cosine.clamp(-1, 1)), scale


def _relu_product(v: Tensor, w: Tensor, c: Tensor) -> Tensor:
    angle, scale = _angle(v, w, c)
    return scale * (torch.sin(angle) + (pi - angle) * torch.cos(angle)) / (2 * pi)


def _relu_slope_product(v: Tensor, w: Tensor, c: Tensor) -> Tensor:
    return (pi - _angle(v, w, c)[0]) / (2 * pi)


def _gelu_product(v: Tensor, w: Tensor, c: Tensor) -> Tensor:
    a, b = 1 + v, 1 + w
    root = (a * b - c**2).sqrt()
    both_pass = 1 / 4 + torch.arcsin(c / (a * b).sqrt()) / (2 * pi)
    return c * both_pass + (v * w + c**2 * (1 / a + 1 / b - 1)) / (2 * pi * root)


def _gelu_slope_product(v: Tensor, w: Tensor, c: Tensor) -> Tensor:
    a, b = 1 + v, 1 + w
    root = (a * b - c**2).sqrt()
    crossed = 1 / a + 1 / b - 1
    both_pass = 1 / 4 + torch.arcsin(c / (a * b).sqrt()) / (2 * pi)
    return both_pass + c * (1 + 2 * crossed) / (2 * pi * root) + c * (v * w + c**2 * crossed) / (2 * pi * root**3)


def _erf_product(v: Tensor, w: Tensor, c: Tensor) -> Tensor:
    return 2 / pi * torch.arcsin(2 * c / ((1 + 2 * v) * (1 + 2 * w)).sqrt())


def _erf_slope_product(v: Tensor, w: Tensor, c: Tensor) -> Tensor:
    return 4 / pi / ((1 + 2 * v) * (1 + 2 * w) - 4 * c**2).sqrt()


ACTIVATIONS: dict[str, Elementwise] = {
    "identity": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
}

CLOSED_FORMS = {
    "identity": DualActivation(
        "identity", torch.zeros_like, lambda v, w, c: c + 0 * v * w, lambda v, w, c: torch.ones_like(c + v * w), "exact"
    ),
    "relu": DualActivation("relu", lambda v: (v / (2 * pi)).sqrt(), _relu_product, _relu_slope_product, "exact"),
    "gelu": DualActivation(
        "gelu", lambda v: v / (sqrt(2 * pi) * (1 + v).sqrt()), _gelu_product, _gelu_slope_product, "exact"
    ),
    "erf": DualActivation("erf", torch.zeros_like, _erf_product, _erf_slope_product, "exact"),
}
