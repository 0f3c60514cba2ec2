"""Where the centred ansatz starts: its limit as training time goes to zero, from one batch before any step.

Under gradient flow W - W_0 = t V + O(t^2) with V the layer's negative gradient, so the centred NFM and AGOP are
t^2 V^T V and t^2 V^T K V to leading order, K at initialisation; no derivative of K enters. Their correlation is 0/0
at t = 0 and has a limit: the ansatz correlation of V itself. For a linear map with inputs X and squared error this is
the cosine of X^T D K D X and X^T D K^2 D X, D = diag(y - f_0), K the n x n kernel (arXiv 2402.05271; there D =
diag(y), right if f_0 = 0).
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.alignment_null import Correlation, ansatz


def early_time_limit(
    velocity: Float[Tensor, "unit input"], ptk_covariance: Float[Tensor, "unit unit"], *, draws: int = 50
) -> Correlation:
    """The centred correlation as t -> 0+, beside its null, from the layer's negative gradient and its K at
    initialisation.

    `velocity` is minus the gradient of the loss for this layer on the batch K was measured on: any loss, any number of
    outputs, any kind of layer. Its scale plays no part.
    """
    return ansatz(velocity, ptk_covariance, draws=draws)


def velocity_of(
    pre_activation_gradients: Float[Tensor, "example output unit"],
    layer_inputs: Float[Tensor, "example input"],
    residuals: Float[Tensor, "example output"],
) -> Float[Tensor, "unit input"]:
    """The direction a linear map starts to move in: sum over examples and outputs of b r x^T.

    `residuals` are minus the derivative of the loss by each output; for squared error y - f_0, with f_0 the network's
    own outputs at initialisation. Standard initialisation has f_0 far from zero, and taking y alone moves the limit.
    """
    pull = (pre_activation_gradients * residuals[:, :, None]).sum(dim=1)
    return pull.T @ layer_inputs


def ptk_covariance_of(
    pre_activation_gradients: Float[Tensor, "example output unit"], *, centred_gradients: bool = False
) -> Float[Tensor, "unit unit"]:
    """Sum over examples and outputs of b b^T; with `centred_gradients` after taking each output's mean over examples
    off.

    The second is the "centred" of recursive feature machines, and has nothing to do with W - W_0.
    """
    gradients = pre_activation_gradients
    if centred_gradients:
        gradients = gradients - gradients.mean(dim=0)
    rows = gradients.flatten(0, 1)
    return rows.T @ rows


def early_time_limit_of_kernels(
    ptk: Float[Tensor, "example example"],
    input_gram: Float[Tensor, "example example"],
    residuals: Float[Tensor, "example"],
) -> Float[Tensor, ""]:
    """The same limit for one output from n x n kernels alone: the PTK and the Gram of the layer's inputs.

    cos(X^T D K D X, X^T D K^2 D X) by traces: it needs no width, so that infinite-width kernels can be put in.

    >>> import torch
    >>> early_time_limit_of_kernels(torch.eye(3), torch.eye(3), torch.ones(3)).item()
    1.0
    """
    ptk, gram, residuals = ptk.double(), input_gram.to(ptk.device).double(), residuals.to(ptk.device).double()
    driven = residuals[:, None] * gram * residuals  # D X X^T D
    first, second = ptk @ driven, ptk @ (ptk @ driven)
    return (first * second.T).sum() / ((first * first.T).sum() * (second * second.T).sum()).sqrt()
