"""Gaussian expectations of one or two correlated pre-activations, for any elementwise function."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

Elementwise = Callable[[Tensor], Tensor]

# e^{-r^2/2} is 1e-22 here: what lies beyond is below the last digit of float64
FARTHEST = 10.0


@lru_cache(maxsize=16)
def _legendre(nodes: int) -> tuple[Float[Tensor, "node"], Float[Tensor, "node"]]:
    """Gauss-Legendre nodes and weights on [0, 1], from the eigenvectors of the Jacobi matrix (Golub & Welsch 1969)."""
    k = torch.arange(1, nodes, dtype=torch.float64)
    beside = k / (4 * k**2 - 1).sqrt()
    place, vectors = torch.linalg.eigh(torch.diag(beside, 1) + torch.diag(beside, -1))
    return (place + 1) / 2, vectors[0] ** 2


def gaussian_mean(
    function: Elementwise, variance: Float[Tensor, "*shape"], nodes: int = 128
) -> Float[Tensor, "*shape"]:
    """E f(u) for u ~ N(0, variance), each half-line on its own so that a kink at zero costs nothing.

    Cost: 2 * nodes evaluations per entry.
    """
    place, weight = _legendre(nodes)
    height = FARTHEST * place
    density = FARTHEST * weight * torch.exp(-(height**2) / 2) / sqrt(2 * pi)
    u = variance.double().sqrt()[..., None] * height
    return ((function(u) + function(-u)) * density).sum(-1)


def gaussian_pair_mean(
    first: Elementwise,
    second: Elementwise,
    variance: Float[Tensor, "*#shape"],
    other_variance: Float[Tensor, "*#shape"],
    covariance: Float[Tensor, "*shape"],
    *,
    angles: int = 24,
    radii: int = 64,
    chunk: int = 1024,
) -> Float[Tensor, "*shape"]:
    """E f(u) g(z) for (u, z) jointly Gaussian, in polar coordinates cut where u or z changes sign.

    With u = a r cos t and z = b r cos(t - angle), cos(angle) the correlation, functions that are smooth on both sides
    of zero (ReLU and its slope, leaky ReLU, ELU) are smooth on each of the four sectors: Gauss-Legendre then
    converges at its full speed, where Gauss-Hermite stalls at the kink. Cost: 4 * angles * radii evaluations per entry.
    """
    variance, other_variance, covariance = torch.broadcast_tensors(variance, other_variance, covariance)
    shape = variance.shape
    flat = torch.stack([variance.reshape(-1), other_variance.reshape(-1), covariance.reshape(-1)]).double()
    parts = [_polar(first, second, part[0], part[1], part[2], angles, radii) for part in flat.split(chunk, dim=1)]
    return torch.cat(parts).reshape(shape) if parts else torch.zeros(shape, dtype=torch.float64)


def _polar(
    first: Elementwise,
    second: Elementwise,
    variance: Float[Tensor, "pair"],
    other_variance: Float[Tensor, "pair"],
    covariance: Float[Tensor, "pair"],
    angles: int,
    radii: int,
) -> Float[Tensor, "pair"]:
    place, weight = _legendre(radii)
    radius = FARTHEST * place
    radial = FARTHEST * weight * radius * torch.exp(-(radius**2) / 2) / (2 * pi)

    a, b = variance.sqrt(), other_variance.sqrt()
    # a zero variance has no correlation: any angle serves, the sine of zero is zero either way
    correlation = torch.where(a * b > 0, covariance / (a * b).clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    between = torch.arccos(correlation.clamp(-1, 1))

    # the four sectors start where u or z is zero, and are `between` and `pi - between` wide in turn
    starts = torch.stack([-pi / 2 + 0 * between, between - pi / 2, pi / 2 + 0 * between, between + pi / 2], -1)
    widths = torch.stack([between, pi - between, between, pi - between], -1)
    place, weight = _legendre(angles)
    turn = (starts[..., None] + widths[..., None] * place).flatten(1)
    arc = (widths[..., None] * weight).flatten(1)

    u = a[:, None, None] * torch.cos(turn)[..., None] * radius
    z = b[:, None, None] * torch.cos(turn - between[:, None])[..., None] * radius
    return torch.einsum("par,pa,r->p", first(u) * second(z), arc, radial)


def slope(function: Elementwise) -> Elementwise:
    """The derivative of an elementwise function, by automatic differentiation."""

    def derivative(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = function(x)
            if not value.requires_grad:  # a constant function
                return torch.zeros_like(x)
            return torch.autograd.grad(value.sum(), x)[0]

    return derivative
