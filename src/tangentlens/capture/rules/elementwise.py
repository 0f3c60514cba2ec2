"""Parameters that add to or scale the data, broadcast over it: biases, gates, scales, PReLU slopes, class tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlens.capture.factors import Formed
from tangentlens.capture.layout import Layout, Regular
from tangentlens.capture.rules.reading import Reading


@dataclass(frozen=True)
class Broadcast:
    """d result / d parameter = scale * slope, elementwise; summed over the axes the parameter was broadcast along.

    `channel` aligns the parameter with axis 1 of the result (convolutions, batch norm), otherwise with its last axes.
    """

    slope: Tensor | None
    scale: float = 1.0
    channel: bool = False
    example_axes: tuple[int, ...] = ()  # empty: examples may lie along any axis

    def factor(self, gradients: Tensor, layout: Layout, examples: int, shape: torch.Size) -> Formed:
        values = gradients if self.slope is None else gradients * self.slope
        values = values * self.scale if self.scale != 1 else values
        ndim = values.ndim - 1
        aligned = [1, *shape] + [1] * (ndim - 2) if self.channel else [1] * (ndim - len(shape)) + list(shape)
        if isinstance(layout, Regular) and aligned[layout.axis] == 1:
            split = values.unflatten(layout.axis + 1, (layout.outer, examples, layout.inner))
            split = split.movedim(layout.axis + 2, 0)
            summed = split.sum(_broadcast_axes(aligned, layout.axis), keepdim=False)
        else:
            summed = self._one_by_one(values, layout, examples, aligned)
        return Formed(summed.reshape(examples, len(gradients), *shape))

    def _one_by_one(self, values: Tensor, layout: Layout, examples: int, aligned: list[int]) -> Tensor:
        """The parameter itself varies along the example axis (or rows are ragged): pick each example out."""
        ids = layout.ids(values.shape[1:], examples, values.device) if isinstance(layout, Regular) else layout.ids
        target = (len(values), *aligned)
        return torch.stack([torch.where(ids == n, values, 0).sum_to_size(target) for n in range(examples)])


def _broadcast_axes(aligned: list[int], split: int) -> list[int]:
    """Axes to sum of (example, output, *result with axis `split` as outer and inner)."""
    axes = []
    for axis, size in enumerate(aligned):
        if size == 1:
            position = 2 + axis + (1 if axis > split else 0)
            axes += [position, position + 1] if axis == split else [position]
    return axes


def _add(node: Any, slot: int) -> Reading | None:
    return Broadcast(None, float(node._saved_alpha) if slot == 1 else 1.0)


def _sub(node: Any, slot: int) -> Reading | None:
    return Broadcast(None, -float(node._saved_alpha) if slot == 1 else 1.0)


def _rsub(node: Any, slot: int) -> Reading | None:
    return Broadcast(None, -float(node._saved_alpha) if slot == 0 else 1.0)


def _expand(node: Any, slot: int) -> Reading | None:
    return Broadcast(None)


def _mul(node: Any, slot: int) -> Reading | None:
    other = node._saved_other if slot == 0 else node._saved_self
    return Broadcast(other) if isinstance(other, Tensor) else None


def _div(node: Any, slot: int) -> Reading | None:
    other = node._saved_other
    if not isinstance(other, Tensor):
        return None
    return Broadcast(other.reciprocal() if slot == 0 else -node._saved_self / other.square())


def _where(node: Any, slot: int) -> Reading | None:
    condition = node._saved_condition
    return Broadcast((condition if slot == 0 else ~condition).to(torch.get_default_dtype()))


def _repeat(node: Any, slot: int) -> Reading | None:
    """Repeating along axes of size one is broadcasting; along others it tiles, which stays a parameter."""
    sizes, repeats = node._saved_self_sym_sizes, node._saved_repeats
    padded = [1] * (len(repeats) - len(sizes)) + list(sizes)
    return Broadcast(None) if all(s == 1 or r == 1 for s, r in zip(padded, repeats, strict=True)) else None


def _prelu(node: Any, slot: int) -> Reading | None:
    return Broadcast(node._saved_self.clamp(max=0)) if slot == 1 else None


RULES = {
    "AddBackward0": _add,
    "SubBackward0": _sub,
    "RsubBackward0": _rsub,
    "ExpandBackward0": _expand,
    "MulBackward0": _mul,
    "DivBackward0": _div,
    "WhereBackward0": _where,
    "RepeatBackward0": _repeat,
    "PreluKernelBackward0": _prelu,
}
