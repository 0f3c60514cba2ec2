"""The ways PyTorch code writes a linear map z = W a (+ b), read as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

_MATMULS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)
_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)


@dataclass(frozen=True)
class LinearMap:
    """One call of a linear map, rows in the same order on both sides; nothing is copied before it is asked for.

    `inputs()` gives (row, unit), `results(z)` brings a tensor of the result's shape to (row, output), `weight()` is
    (output, unit).
    """

    inputs: Callable[[], Float[Tensor, "row unit"]]
    results: Callable[[Tensor], Float[Tensor, "row output"]]
    weight: Callable[[], Float[Tensor, "output unit"]]
    bias: Tensor | None
    owner: Tensor


def linear_map(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_parameter: Callable[[Tensor], bool],
) -> LinearMap | None:
    """The call as a linear map, or None; a product of two activations (attention) is none."""
    if function is F.linear:
        given = _named(("input", "weight", "bias"), args, kwargs)
        return _last_axis(given["input"], given["weight"], given.get("bias"))
    if function in (torch.addmm, Tensor.addmm):
        given = _named(("input", "mat1", "mat2"), args, kwargs)
        if is_parameter(given["mat2"]) and given["input"].ndim == 1:
            return _last_axis(given["mat1"], given["mat2"].T, given["input"])
    if function in _MATMULS:
        left, right = _named(("input", "other"), args, kwargs).values()
        if right.ndim == 2 and left.ndim >= 2 and is_parameter(right):
            return _last_axis(left, right.T, None)
    if function is torch.einsum and len(args) == 3 and isinstance(args[0], str):
        return _einsum(args[0], args[1], args[2], is_parameter)
    if function in _CONVOLUTIONS:
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        return _convolution(_named(names, args, kwargs))
    return None


def _named(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(names, args)), **kwargs}


def _last_axis(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> LinearMap:
    return LinearMap(_rows(inputs.detach()), _rows_of_result, lambda: weight.detach(), _detached(bias), weight)


def _rows(values: Tensor) -> Callable[[], Tensor]:
    return lambda: values.reshape(-1, values.shape[-1])


def _rows_of_result(result: Tensor) -> Tensor:
    return result.reshape(-1, result.shape[-1])


def _einsum(equation: str, first: Tensor, second: Tensor, is_parameter: Callable[[Tensor], bool]) -> LinearMap | None:
    sides, _, to = equation.replace(" ", "").partition("->")
    letters = sides.split(",")
    if "." in equation or len(letters) != 2 or not to:
        return None
    inputs, weight = (first, second) if is_parameter(second) else (second, first)
    of_inputs, of_weight = letters if is_parameter(second) else letters[::-1]
    unit = "".join(letter for letter in of_weight if letter in of_inputs and letter not in to)
    output = "".join(letter for letter in of_weight if letter not in of_inputs and letter in to)
    rest = to.replace(output, "") if len(output) == 1 else ""
    if not is_parameter(weight) or (len(of_weight), len(unit), len(output)) != (2, 1, 1):
        return None
    if set(rest) != set(of_inputs) - {unit}:
        return None
    rows = inputs.detach()
    return LinearMap(
        lambda: _rows_of_result(torch.einsum(f"{of_inputs}->{rest}{unit}", rows)),
        lambda z: _rows_of_result(torch.einsum(f"{to}->{rest}{output}", z)),
        lambda: torch.einsum(f"{of_weight}->{output}{unit}", weight.detach()),
        None, weight,
    )  # fmt: skip


def _convolution(given: Mapping[str, Any]) -> LinearMap | None:
    weight, inputs = given["weight"], given["input"].detach()
    options = [given.get("stride", 1), given.get("padding", 0), given.get("dilation", 1)]
    if given.get("groups", 1) != 1 or inputs.ndim != weight.ndim or any(isinstance(o, str) for o in options):
        return None
    pointwise = all(size == 1 for size in weight.shape[2:]) and all(map(_all_are, options, (1, 0, 1)))
    if not pointwise and inputs.ndim > 4:
        return None
    return LinearMap(
        (lambda: _rows_of_result(inputs.movedim(1, -1))) if pointwise
        else lambda: _patches(inputs, weight.shape[2:], options),
        lambda z: _rows_of_result(z.movedim(1, -1)),
        lambda: weight.detach().flatten(1),
        _detached(given.get("bias")), weight,
    )  # fmt: skip


def _patches(inputs: Tensor, kernel: Sequence[int], options: list[Any]) -> Tensor:
    """Every patch a convolution sees, one per row."""
    if len(kernel) == 1:  # as an image one pixel high
        inputs, kernel = inputs.unsqueeze(2), (1, *kernel)
        options = [(value, *_tuple(option)) for value, option in zip((1, 0, 1), options)]
    stride, padding, dilation = options
    patches = F.unfold(inputs, tuple(kernel), dilation=dilation, padding=padding, stride=stride)
    return _rows_of_result(patches.transpose(1, 2))


def _all_are(option: int | Sequence[int], value: int) -> bool:
    return all(item == value for item in _tuple(option))


def _tuple(option: int | Sequence[int]) -> tuple[int, ...]:
    return (option,) if isinstance(option, int) else tuple(option)


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()
