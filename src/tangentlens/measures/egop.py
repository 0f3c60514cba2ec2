"""Feature quality where the target function is known: does W^T W see the directions the target varies along?

EGOP = E_x[grad f*(x) grad f*(x)^T] of the *target* over the data's law; the AGOP is the same of the network.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.alignment_null import Correlation


def egop(target: Callable[[Tensor], Tensor], inputs: Float[Tensor, "example input"]) -> Float[Tensor, "input input"]:
    """The expected gradient outer product of a known function, averaged over the given inputs, summed over its outputs.

    `target` maps a batch (example, input) to (example,) or (example, output), each row from its own input alone.

    >>> import torch
    >>> egop(lambda x: 3 * x[:, 0], torch.ones(4, 2))
    tensor([[9., 0.],
            [0., 0.]])
    """
    inputs = inputs.detach().requires_grad_(True)
    with torch.enable_grad():
        values = target(inputs)
        if values.ndim == 0 or len(values) != len(inputs):
            raise ValueError(
                f"the target maps {len(inputs)} inputs to one row each, got values of shape {tuple(values.shape)}; "
                "write it for a batch, without summing or averaging over examples"
            )
        if not values.requires_grad:  # a constant, which has no graph
            return inputs.new_zeros(inputs.shape[1], inputs.shape[1]).detach()
        values = values.reshape(len(inputs), -1)
        gradients = [torch.autograd.grad(column.sum(), inputs, retain_graph=True)[0] for column in values.unbind(dim=1)]
    stacked = torch.cat(gradients)
    return stacked.T @ stacked / len(inputs)


def feature_quality(metric: Float[Tensor, "input input"], target_egop: Float[Tensor, "input input"]) -> Correlation:
    """Cosine of a feature metric (an NFM, an AGOP, the metric of a recursive feature machine) with the target's EGOP.

    The null turns the metric's eigenvectors at random: tr(F) tr(E) / (d |F| |E|), exact, for |F| does not turn.
    """
    if metric.shape != target_egop.shape:
        raise ValueError(
            f"a metric and an EGOP have the same input side, got {tuple(metric.shape)} and {tuple(target_egop.shape)}; "
            "take the NFM or AGOP of the layer that reads the target's inputs"
        )
    metric, target_egop = metric.double(), target_egop.to(metric.device).double()
    norms = metric.norm() * target_egop.norm()
    null = metric.trace() * target_egop.trace() / (len(metric) * norms)
    # variance of tr(F E) under turning, from the second moments of a uniformly turned matrix
    size = len(metric)
    free = [
        (matrix - matrix.trace() / size * torch.eye(size).to(matrix)).square().sum() for matrix in (metric, target_egop)
    ]
    spread = (2 * free[0] * free[1] / ((size - 1) * (size + 2))).sqrt() / norms if size > 1 else torch.zeros_like(null)
    value = (metric * target_egop).sum() / norms
    return Correlation(value, null, null - 1.645 * spread, null + 1.645 * spread, null)
