"""Gaussian expectations of one or two correlated pre-activations, for any elementwise function."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import pi, sqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor

Elementwise = Callable[[Tensor], Tensor]

# e^{-r^2/2} is 1e-22 here: what lies beyond is below the last digit of float64
FARTHEST = 10.0
ACCURACY = 1e-6


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

    Twice the nodes must give the same; a function with a kink elsewhere, or far steeper than its variance is wide, is
    refused. Cost: 6 * nodes evaluations per entry.
    """
    mean, finer = _half_lines(function, variance, nodes), _half_lines(function, variance, 2 * nodes)
    size = _half_lines(lambda u: function(u).abs(), variance, nodes)
    if not _agree(mean, finer, size):
        raise _not_smooth(function, float((finer - mean).abs().max()), float(variance.max()))
    return finer


def _half_lines(function: Elementwise, variance: Float[Tensor, "*shape"], nodes: int) -> Float[Tensor, "*shape"]:
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
    converges at its full speed, where Gauss-Hermite stalls at the kink. A few entries are checked against twice the
    order, which is raised at most fourfold until they agree; functions with a kink elsewhere, or far steeper than their
    variance is wide, never do and are refused. Cost: 4 * angles * radii evaluations per entry.
    """
    variance, other_variance, covariance = torch.broadcast_tensors(variance, other_variance, covariance)
    shape = variance.shape
    flat = torch.stack([variance.reshape(-1), other_variance.reshape(-1), covariance.reshape(-1)]).double()
    if not flat.shape[1]:
        return torch.zeros(shape, dtype=torch.float64)
    times = _times_the_order(first, second, flat[:, _spread(flat)], angles, radii)
    parts = flat.split(max(1, chunk // times**2), dim=1)
    found = [_polar(first, second, p[0], p[1], p[2], times * angles, times * radii) for p in parts]
    return torch.cat(found).reshape(shape)


def _spread(flat: Float[Tensor, "3 pair"], count: int = 16) -> Int[Tensor, "chosen"]:
    """Entries from the smallest to the largest correlation, and the one of the largest variance."""
    scale = (flat[0] * flat[1]).sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    order = (flat[2] / scale).argsort()
    places = torch.linspace(0, len(order) - 1, min(count, len(order))).round().long()
    return torch.unique(torch.cat([order[places], flat[:2].amax(0).argmax()[None]]))


def _times_the_order(
    first: Elementwise, second: Elementwise, few: Float[Tensor, "3 pair"], angles: int, radii: int
) -> int:
    """How many times the order it takes until twice as many nodes change nothing."""
    seen = _polar(first, second, few[0], few[1], few[2], angles, radii)
    size = _polar(lambda u: first(u).abs(), lambda z: second(z).abs(), few[0], few[1], few[2], angles, radii)
    for times in (1, 2, 4):
        finer = _polar(first, second, few[0], few[1], few[2], 2 * times * angles, 2 * times * radii)
        if _agree(seen, finer, size):
            return times
        apart, seen = float((finer - seen).abs().max()), finer
    raise _not_smooth(first, apart, float(few[:2].max()))


def _agree(value: Tensor, finer: Tensor, size: Tensor) -> bool:
    """To within a millionth of the integral without signs: what is odd integrates to zero and has no size itself."""
    return bool(((finer - value).abs() <= ACCURACY * size + torch.finfo(torch.float64).tiny).all())


def _not_smooth(function: Elementwise, apart: float, variance: float) -> ValueError:
    return ValueError(
        "the quadrature takes functions that are smooth on either side of zero at the scale of their variance, got "
        f"{_named(function)}, whose integral moves by {apart:.2g} with the order at variance {variance:.3g}; "
        "smooth its kinks, or use smaller deviations"
    )


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

    derivative.__name__ = f"the slope of {_named(function)}"
    return derivative


def _named(function: Elementwise) -> str:
    return getattr(function, "__name__", type(function).__name__)
