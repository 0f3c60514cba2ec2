"""Early-time predictions beside simulation, over the covariance exponent of power-law Gaussian inputs.

A prediction belongs to a data set: both sides see the same inputs and targets, and only weights are averaged over.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels import layer_moments
from tangentlens.measures.alignment import ansatz_correlation
from tangentlens.measures.alignment_null import ansatz
from tangentlens.measures.early_time import ptk_covariance_of, velocity_of
from tangentlens.measures.free_probability import quadratic_early_limit
from tangentlens.measures.relu_early_time import relu_early_limit
from tangentlens.studies.beaglehole2024.chain import Chain
from tangentlens.studies.beaglehole2024.networks import relu_network

NULLS = 4
"""Networks of a data set whose kernel is put in random bases; their chance levels are averaged."""


@dataclass(frozen=True)
class Early:
    """One data set: what was predicted and what random networks on it gave, with the chance level of the latter."""

    exponent: float
    seed: int
    predicted: float
    infinite_width: float
    simulated: float
    null: float


def quadratic_early(
    exponent: float, seed: int, *, inputs: int = 128, examples: int = 512, width: int = 256, networks: int = 6
) -> Early:
    """f(x) = a^T (W x)^2 with signs a and y a product of two random projections."""
    torch.manual_seed(seed)
    data = power_law(examples, inputs, exponent)
    first, second = torch.randn(2, inputs, dtype=torch.float64)
    targets = (data @ first) * (data @ second)
    limits: list[tuple[Tensor, Tensor]] = []
    for _ in range(networks):
        weight = torch.randn(width, inputs, dtype=torch.float64)
        signs = torch.randint(0, 2, (width,)).double() * 2 - 1
        limits.append(_limit(2 * (data @ weight.T) * signs, data, targets, len(limits)))
    predicted = quadratic_early_limit(data, targets, width=width)
    infinite = quadratic_early_limit(data, targets, width=None)
    return _early(exponent, seed, predicted, infinite, limits)


def relu_early(
    exponent: float, hidden: int, seed: int, *, examples: int = 512, width: int = 1024, networks: int = 4
) -> Early:
    """The first layer of random ReLU networks on the chain task over power-law inputs, targets for residuals."""
    chain = Chain()
    torch.manual_seed(seed)
    data = power_law(examples, chain.inputs, exponent)
    targets = chain(data)
    limits: list[tuple[Tensor, Tensor]] = []
    for network in range(networks):
        layers = relu_network(chain.inputs, width=width, hidden=hidden, seed=1000 * seed + network).double()
        for weight in layers.parameters():  # the prediction is for Gaussian weights
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        before = layers[0](data).detach().requires_grad_(True)
        (gradients,) = torch.autograd.grad(layers[1:](before).sum(), before)
        limits.append(_limit(gradients, data, targets, len(limits)))
    predicted = relu_early_limit(data, targets, hidden=hidden)
    return _early(exponent, seed, predicted, predicted, limits)


def residual_and_target_limits(seed: int, *, examples: int = 512, hidden: int = 2) -> dict[str, float]:
    """The limit at standard initialisation with y - f_0, with y alone in its place, and after one tiny real step."""
    chain = Chain()
    inputs, targets = chain.draw(examples, torch.Generator().manual_seed(seed))
    inputs, targets = inputs.double(), targets.double()
    network = relu_network(chain.inputs, hidden=hidden, seed=seed).double()
    outputs = network(inputs)
    kernel = layer_moments(network, inputs, layers=["0"])["0"].ptk_covariance
    weight = next(network.parameters())
    limits = {}
    for name, residuals in (("residual", targets - outputs), ("target", targets)):
        (velocity,) = torch.autograd.grad((outputs * residuals.detach()).sum(), weight, retain_graph=True)
        limits[name] = float(ansatz_correlation(velocity, kernel))
    initial = weight.detach().clone()
    gradients = torch.autograd.grad((outputs - targets).square().mean(), list(network.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(network.parameters(), gradients):
            parameter.sub_(1e-6 * gradient)
    stepped = layer_moments(network, inputs, layers=["0"])["0"]
    limits["tiny step"] = float(ansatz_correlation(stepped.weight - initial, stepped.ptk_covariance))
    return limits


def power_law(examples: int, width: int, exponent: float) -> Float[Tensor, "example input"]:
    """Gaussian inputs whose covariance has eigenvalues (1 + i)^-exponent in a random basis."""
    scales = (1 + torch.arange(width, dtype=torch.float64)) ** (-exponent / 2)
    basis = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64)).Q
    return (torch.randn(examples, width, dtype=torch.float64) * scales) @ basis.T


def _limit(gradients: Tensor, data: Tensor, targets: Tensor, network: int) -> tuple[Tensor, Tensor]:
    velocity = velocity_of(gradients[:, None], data, targets[:, None])
    found = ansatz(velocity, ptk_covariance_of(gradients[:, None]), draws=39 if network < NULLS else 0, seed=network)
    return found.value, found.null if network < NULLS else torch.full_like(found.value, torch.nan)


def _early(
    exponent: float, seed: int, predicted: Tensor, infinite: Tensor, limits: list[tuple[Tensor, Tensor]]
) -> Early:
    simulated, null = (torch.stack(part).nanmean().item() for part in zip(*limits))
    return Early(exponent, seed, predicted.item(), infinite.item(), simulated, null)
