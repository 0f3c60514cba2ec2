"""Where the centred ansatz starts: its limit as training time goes to zero, from one batch before any step.

Under gradient flow W - W_0 = t V + O(t^2) with V the layer's negative gradient, so the centred NFM and AGOP are
t^2 V^T V and t^2 V^T K V to leading order, K at initialisation; no derivative of K enters. Their correlation is 0/0
at t = 0 and has a limit: the ansatz correlation of V itself. For a linear map with inputs X and squared error this is
the cosine of X^T D K D X and X^T D K^2 D X, D = diag(y - f_0), K the n x n kernel (arXiv 2402.05271; there D =
diag(y), right if f_0 = 0).
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels import LayerMoments
from tangentlens.measures.alignment_null import DRAWS, Correlation, ansatz


def early_time_limits(
    moments: Mapping[str, LayerMoments], gradients: Mapping[str, Tensor | None], *, draws: int = DRAWS
) -> dict[str, Correlation]:
    """The centred correlation of every layer as t -> 0+, beside its null: from the moments of one batch and the
    gradients of the loss on it.

    `gradients` are by the name of the parameter: `{name: p.grad for name, p in model.named_parameters()}` after one
    backward pass. Convolutions, packed and tied weights are laid out as their moments are.
    """
    limits = {}
    for number, (layer, found) in enumerate(moments.items()):
        gradient = None if found.layout is None else gradients.get(found.layout.parameter)
        if found.layout is None or gradient is None:
            wanted = layer if found.layout is None else found.layout.parameter
            raise ValueError(
                f"the limit of {layer!r} needs the gradient of {wanted!r}, got those of "
                f"{', '.join(name for name, there in gradients.items() if there is not None) or 'nothing'}; call "
                "loss.backward() first, and read moments of the layers that are trained: layer_moments(..., layers=...)"
            )
        velocity = -found.layout.matrix(gradient.detach())
        limits[layer] = ansatz(velocity, found.ptk_covariance, draws=draws, seed=number)
    return limits


def early_time_limit(
    velocity: Float[Tensor, "unit input"], ptk_covariance: Float[Tensor, "unit unit"], *, draws: int = DRAWS
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
    ptk: Float[Tensor, "example example"] | Float[Tensor, "example output example output"],
    input_gram: Float[Tensor, "example example"],
    residuals: Float[Tensor, "example"] | Float[Tensor, "example output"],
) -> Float[Tensor, ""]:
    """The same limit from kernels between examples alone: the PTK and the Gram of the layer's inputs.

    cos(X^T R^T K R X, X^T R^T K^2 R X) by traces, R the residuals (diag(r) for one output; each output's block on its
    own rows for several): it needs no width, so that infinite-width kernels can be put in.

    >>> import torch
    >>> early_time_limit_of_kernels(torch.eye(3), torch.eye(3), torch.ones(3)).item()
    1.0
    """
    ptk, gram, residuals = ptk.double(), input_gram.to(ptk.device).double(), residuals.to(ptk.device).double()
    examples, outputs = ptk.shape[0], ptk.shape[1] if ptk.ndim == 4 else 1
    if ptk.shape not in ((examples,) * 2, (examples, outputs) * 2) or gram.shape != (examples, examples):
        raise ValueError(
            "the limit needs a PTK (example, example) or (example, output, example, output) and the Gram of as many "
            f"inputs, got {tuple(ptk.shape)} and {tuple(gram.shape)}"
        )
    if residuals.shape != (examples, outputs) and not (outputs == 1 and residuals.shape == (examples,)):
        raise ValueError(
            f"a PTK of {examples} examples and {outputs} outputs needs residuals {(examples, outputs)}, got "
            f"{tuple(residuals.shape)}; they are y - f_0 for squared error"
        )
    pull = residuals.new_zeros(examples, outputs, examples)  # R, one output's residuals beside the others'
    pull.diagonal(dim1=0, dim2=2).copy_(residuals.reshape(examples, outputs).T)
    pull, kernel = pull.flatten(0, 1), ptk.reshape(examples * outputs, examples * outputs)
    driven = kernel @ pull
    first, second = gram @ (pull.T @ driven), gram @ (driven.T @ driven)
    return (first * second.T).sum() / ((first * first.T).sum() * (second * second.T).sum()).sqrt()
