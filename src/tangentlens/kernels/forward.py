"""The forward-feature kernel: inner products of what a layer is given."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.probe import Inputs
from tangentlens.kernels.features import features


def forward_kernel(model: nn.Module, inputs: Inputs, layer: str | None = None) -> Float[Tensor, "example example"]:
    """<a[n], a[m]> at the layer's input (the head's, found by itself, when no layer is named); positions flattened."""
    values = features(model, inputs, layer).values
    return values @ values.T
