"""The recursive feature machine: a kernel machine that learns a metric, the AGOP, with no network anywhere.

Loop of Radhakrishnan et al. (Science 2024): solve the kernel regression, take the average gradient outer product of its
solution as the next metric. A metric that resembles a network's NFM says the data, not the architecture, chose the
features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.alignment import positive_power


@dataclass(frozen=True)
class FeatureMachine:
    """A fitted machine: f(x) = sum_j exp(-|x - x_j|_M / bandwidth) coefficients_j, the Laplace kernel."""

    metric: Float[Tensor, "input input"]
    metrics: Float[Tensor, "round input input"]
    centres: Float[Tensor, "example input"]
    coefficients: Float[Tensor, "example output"]
    bandwidth: float

    def __call__(self, inputs: Float[Tensor, "other input"]) -> Float[Tensor, "other output"]:
        """The machine's outputs."""
        return laplace_kernel(inputs, self.centres, self.metric, self.bandwidth) @ self.coefficients

    def __repr__(self) -> str:
        examples, width = self.centres.shape
        return f"FeatureMachine({examples} centres, {width} inputs, {len(self.metrics) - 1} rounds)"


def feature_machine(
    inputs: Float[Tensor, "example input"],
    targets: Float[Tensor, "example output"],
    *,
    rounds: int = 5,
    bandwidth: float = 10.0,
    ridge: float = 1e-3,
    agop_power: float = 1.0,
    centred_gradients: bool = True,
    fixed_trace: bool = True,
) -> FeatureMachine:
    """Fit by `rounds` turns of regression and metric, the first with the Euclidean metric, and one last regression.

    `fixed_trace` scales every metric to the trace of the identity, so that the bandwidth keeps its meaning; the code
    released with the paper leaves the scale to the gradients. Cost per round: example^3 / 3 + output example^2 input.
    """
    _check(inputs, targets, rounds, bandwidth)
    inputs, targets = inputs.double(), targets.to(inputs.device).double()
    examples, width = inputs.shape
    identity = torch.eye(examples, dtype=inputs.dtype, device=inputs.device)
    metric = torch.eye(width, dtype=inputs.dtype, device=inputs.device)
    metrics = [metric]
    for turn in range(rounds + 1):
        kernel = laplace_kernel(inputs, inputs, metric, bandwidth)
        factor = torch.linalg.cholesky(kernel + ridge * identity)
        coefficients = torch.cholesky_solve(targets, factor)
        if turn == rounds:
            break
        gradients = machine_gradients(inputs, inputs, coefficients, metric, bandwidth)
        if centred_gradients:
            gradients = gradients - gradients.mean(dim=0)
        rows = gradients.flatten(0, 1)
        metric = rows.T @ rows / examples
        metric = metric if agop_power == 1 else positive_power(metric, agop_power)
        if fixed_trace:
            if not metric.trace() > 0:
                raise ValueError(
                    f"a metric needs targets that vary, got a solution without a gradient in round {turn}; with "
                    "targets that are all zero only rounds=0 has an answer"
                )
            metric = metric * width / metric.trace()
        metrics.append(metric)
    return FeatureMachine(metric, torch.stack(metrics), inputs, coefficients, bandwidth)


def _check(inputs: Tensor, targets: Tensor, rounds: int, bandwidth: float) -> None:
    if inputs.ndim != 2 or targets.ndim != 2 or len(inputs) != len(targets):
        raise ValueError(
            f"the machine needs inputs (example, input) and targets (example, output), got {tuple(inputs.shape)} and "
            f"{tuple(targets.shape)}; write one target as targets[:, None]"
        )
    if rounds < 0 or not bandwidth > 0:
        raise ValueError(f"rounds are counted from 0 and the bandwidth is positive, got {rounds} and {bandwidth}")


def laplace_kernel(
    inputs: Float[Tensor, "example input"],
    centres: Float[Tensor, "other input"],
    metric: Float[Tensor, "input input"],
    bandwidth: float,
) -> Float[Tensor, "example other"]:
    """exp(-|x - z|_M / bandwidth) with |v|_M^2 = v^T M v."""
    return torch.exp(-_distances(inputs.double(), centres, metric) / bandwidth)


def machine_gradients(
    inputs: Float[Tensor, "example input"],
    centres: Float[Tensor, "other input"],
    coefficients: Float[Tensor, "other output"],
    metric: Float[Tensor, "input input"],
    bandwidth: float,
) -> Float[Tensor, "example output input"]:
    """The machine's input gradients, a centre's own kernel left out at its own place, where it has no derivative."""
    distances = _distances(inputs, centres, metric)
    # d/dx k = -k M (x - z) / (bandwidth |x - z|_M)
    slopes = torch.exp(-distances / bandwidth) / (bandwidth * distances)
    slopes = torch.where(distances < 1e-10, torch.zeros_like(slopes), slopes)
    towards = torch.stack([slopes @ (column[:, None] * centres) for column in coefficients.T], dim=1)
    return (towards - (slopes @ coefficients)[:, :, None] * inputs[:, None, :]) @ metric


def _distances(
    inputs: Float[Tensor, "example input"], centres: Float[Tensor, "other input"], metric: Float[Tensor, "input input"]
) -> Float[Tensor, "example other"]:
    root = positive_power(metric, 0.5)
    # differences, not expanded squares: near-equal inputs lose all digits in |x|^2 + |z|^2 - 2 x z
    return torch.cdist(inputs @ root, centres @ root, compute_mode="donot_use_mm_for_euclid_dist")
