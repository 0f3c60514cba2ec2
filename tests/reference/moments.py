"""PTK and AGOP by perturbing a layer directly: add a zero to its output or its input, differentiate by that zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from tests.reference.tangent import example_count, output_of_one_example


def _gradients(
    model: nn.Module, inputs: Any, outputs: Callable[[Any], Tensor] | None, zeros: list[Tensor], n: int
) -> Float[Tensor, "output position unit"]:
    """d output_c / d zero for one example; a hook fills `zeros` during the forward pass, one per call of the layer."""
    zeros.clear()
    out = output_of_one_example(model, inputs, n, outputs)
    per_output = [torch.autograd.grad(value, list(zeros), retain_graph=True) for value in out]
    return torch.stack([torch.cat([gradient.flatten(0, -2) for gradient in of_output]) for of_output in per_output])


def output_gradients(
    model: nn.Module, inputs: Any, layer: str, outputs: Callable[[Any], Tensor] | None = None
) -> Float[Tensor, "example output position unit"]:
    """b[n, c, t] = d output_c(x_n) / d (the layer's output at position t); a convolution's channels are its units."""
    zeros: list[Tensor] = []
    module = model.get_submodule(layer)
    image_axes = isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)

    def perturb(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        shape = output.movedim(1, -1).shape if image_axes else output.shape
        zeros.append(torch.zeros(shape, dtype=output.dtype, requires_grad=True))
        return output + (zeros[-1].movedim(-1, 1) if image_axes else zeros[-1])

    hook = module.register_forward_hook(perturb)
    found = torch.stack([_gradients(model, inputs, outputs, zeros, n) for n in range(example_count(inputs))])
    hook.remove()
    return found


def ptk(
    model: nn.Module, inputs: Any, layer: str, outputs: Callable[[Any], Tensor] | None = None
) -> Float[Tensor, "example output example2 output2"]:
    b = output_gradients(model, inputs, layer, outputs)
    return torch.einsum("nctq,mdtq->ncmd", b, b)


def ptk_covariance(
    model: nn.Module, inputs: Any, layer: str, outputs: Callable[[Any], Tensor] | None = None
) -> Float[Tensor, "unit unit"]:
    b = output_gradients(model, inputs, layer, outputs).flatten(0, 2)
    return b.T @ b


def agop(
    model: nn.Module, inputs: Any, layer: str, outputs: Callable[[Any], Tensor] | None = None
) -> Float[Tensor, "feature feature"]:
    """Sum of J^T J, J = d output / d (the layer's input), per position or, for an ungrouped conv2d, per patch."""
    module = model.get_submodule(layer)
    zeros: list[Tensor] = []

    def perturb_input(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        zeros.append(torch.zeros_like(args[0], requires_grad=True))
        return (args[0] + zeros[-1],)

    def perturb_patches(module: nn.Conv2d, args: tuple[Tensor], output: Tensor) -> Tensor:
        settings = {"dilation": module.dilation, "padding": module.padding, "stride": module.stride}
        patches = functional.unfold(args[0], module.kernel_size, **settings).transpose(1, 2)
        zeros.append(torch.zeros_like(patches, requires_grad=True))
        by_patches = (patches + zeros[-1]) @ module.weight.flatten(1).T
        if module.bias is not None:
            by_patches = by_patches + module.bias
        by_patches = by_patches.transpose(1, 2).reshape(output.shape)
        torch.testing.assert_close(by_patches, output)
        return by_patches

    hook = (
        module.register_forward_hook(perturb_patches)
        if isinstance(module, nn.Conv2d)
        else module.register_forward_pre_hook(perturb_input)
    )
    rows = [_gradients(model, inputs, outputs, zeros, n).flatten(0, 1) for n in range(example_count(inputs))]
    hook.remove()
    return sum(of_example.T @ of_example for of_example in rows)
