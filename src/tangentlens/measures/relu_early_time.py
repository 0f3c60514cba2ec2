"""The early limit of wide ReLU networks: their pre-activation tangent kernel is a product of arc-cosine kernels.

With Gaussian weights, u_0 the cosine of two inputs, u_{m+1} = k1(u_m) that of their hidden layers, the PTK of layer l
below H hidden layers is proportional to prod_{m=l}^{H-1} k0(u_m); k0, k1 the arc-cosine kernels of Cho and Saul (2009).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels.infinite_width import dual_activation
from tangentlens.measures.early_time import early_time_limit_of_kernels


def relu_ptk(
    inputs: Float[Tensor, "example input"], *, hidden: int, layer: int = 0
) -> tuple[Float[Tensor, "example example"], Float[Tensor, "example example"]]:
    """The PTK of a layer and the Gram of its inputs, each up to a factor, for `hidden` wide ReLU layers without biases.

    Layer 0 reads the inputs, layer `hidden - 1` is the last before the read-out.
    """
    if not 0 <= layer < hidden:
        raise ValueError(f"a network of {hidden} hidden layers has layers 0 .. {hidden - 1}, got {layer}")
    relu = dual_activation("relu")
    covariance = inputs.double() @ inputs.double().T
    gram, ptk = covariance, torch.ones_like(covariance)
    for level in range(hidden):
        variances = covariance.diagonal()
        pair = (variances[:, None].expand_as(covariance), variances.expand_as(covariance), covariance)
        if level == layer:
            gram = covariance
        if level >= layer:
            ptk = ptk * 2 * relu.slope_product(*pair)
        covariance = 2 * relu.product(*pair)  # doubled, as He's initialisation does, to keep the lengths
    return ptk, gram


def relu_early_limit(
    inputs: Float[Tensor, "example input"], residuals: Float[Tensor, "example"], *, hidden: int, layer: int = 0
) -> Float[Tensor, ""]:
    """The predicted early limit of an infinitely wide ReLU network, for residuals that do not depend on its weights.

    That is y where the network starts at zero; at standard initialisation the residual is y - f_0 and f_0 is random.
    """
    ptk, gram = relu_ptk(inputs, hidden=hidden, layer=layer)
    return early_time_limit_of_kernels(ptk, gram, residuals)
