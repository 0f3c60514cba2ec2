"""Slow and obvious forms of the ansatz and its early limits, by the definitions and by simulation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def correlation_by_entries(first: Tensor, second: Tensor, centering: str) -> Tensor:
    """Cosine or Pearson correlation of two whole matrices, entry by entry."""
    a, b = first.flatten(), second.flatten()
    if centering == "entries":
        a, b = a - a.mean(), b - b.mean()
    return torch.dot(a, b) / (a.norm() * b.norm())


def power_by_eigenvalues(matrix: Tensor, power: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    total = torch.zeros_like(matrix)
    for value, vector in zip(values, vectors.T):
        if value > 1e-12 * values[-1]:  # the rest is rounding, which a root would raise
            total += value**power * torch.outer(vector, vector)
    return total


def ansatz_on_the_input_side(weight: Tensor, kernel: Tensor, centering: str = "none", power: float = 1.0) -> Tensor:
    """rho(W^T W, (W^T K W)^p) with both matrices formed at input size."""
    agop = weight.T @ kernel @ weight
    agop = agop if power == 1 else power_by_eigenvalues(agop, power)
    return correlation_by_entries(weight.T @ weight, agop, centering)


def gradient_outer_product(function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """The sum over inputs and outputs of g g^T, g the gradient of one output at one input, each by its own backward."""
    size = inputs[0].numel()
    total = torch.zeros(size, size, dtype=inputs.dtype)
    for example in inputs:
        for gradient in torch.autograd.functional.jacobian(function, example).reshape(-1, size):
            total += torch.outer(gradient, gradient)
    return total


def power_law_inputs(examples: int, width: int, alpha: float, *, rotated: bool) -> Tensor:
    """Gaussian inputs whose covariance has eigenvalues (1 + i)^-alpha, along the axes or in a random basis."""
    scales = (1 + torch.arange(width, dtype=torch.float64)) ** (-alpha / 2)
    inputs = torch.randn(examples, width, dtype=torch.float64) * scales
    if rotated:
        inputs = inputs @ torch.linalg.qr(torch.randn(width, width, dtype=torch.float64))[0]
    return inputs


def product_of_projections(inputs: Tensor) -> Tensor:
    first, second = torch.randn(2, inputs.shape[1], dtype=inputs.dtype)
    return (inputs @ first) * (inputs @ second)


def chain(inputs: Tensor, length: int) -> Tensor:
    """The cyclic chain of quadratic links over the first inputs."""
    return sum(inputs[:, k] * inputs[:, (k + 1) % length] for k in range(length))


def centred_matrices(gradients: Tensor, inputs: Tensor, residuals: Tensor) -> tuple[Tensor, Tensor]:
    """X^T D K D X and X^T D K^2 D X with the n x n kernel K = A A^T, as the paper's second derivatives have them."""
    diagonal = torch.diag(residuals)
    kernel = gradients @ gradients.T
    return (
        inputs.T @ diagonal @ kernel @ diagonal @ inputs,
        inputs.T @ diagonal @ kernel @ kernel @ diagonal @ inputs,
    )


def quadratic_gradients(inputs: Tensor, width: int) -> Tensor:
    """Pre-activation gradients 2 a (W x) of f(x) = a^T (W x)^2 for one draw of Gaussian W and signs a."""
    weight = torch.randn(width, inputs.shape[1], dtype=inputs.dtype) / width**0.5
    signs = torch.randint(0, 2, (width,)).to(inputs.dtype) * 2 - 1
    return 2 * (inputs @ weight.T) * signs


def relu_gradients(inputs: Tensor, width: int, hidden: int, layer: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Pre-activation gradients and inputs of one layer of a random ReLU network, and its outputs, by autograd."""
    activations = inputs
    for level in range(hidden):
        fan_in = activations.shape[1]
        before = activations @ torch.randn(width, fan_in, dtype=inputs.dtype).T * (2 / fan_in) ** 0.5
        if level == layer:
            layer_inputs, chosen = activations, before.requires_grad_(True)
        activations = before.relu()
    outputs = activations @ torch.randn(width, dtype=inputs.dtype) * (2 / width) ** 0.5
    (gradients,) = torch.autograd.grad(outputs.sum(), chosen)
    return gradients, layer_inputs.detach(), outputs.detach()
