"""Convolutions as matrix products over patches; a transposed one is its mirror image, patches of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from tangentlens.capture.factors import Outer
from tangentlens.capture.layout import Layout
from tangentlens.capture.rules.elementwise import Broadcast
from tangentlens.capture.rules.reading import Reading, Rows


def patches(
    images: Float[Tensor, "image channel *space"],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    positions: list[int],
    groups: int,
) -> Float[Tensor, "image position group patch"]:
    """What each position of a convolution sees, channel first as in the weight's own order."""
    spaces = len(kernel)
    x = F.pad(images, [side for pad in reversed(padding) for side in (pad, pad)])
    for d in range(spaces):
        needed = (positions[d] - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1
        if x.shape[2 + d] < needed:  # transposed with output padding: the last rows see nothing there
            x = F.pad(x, [0, 0] * (spaces - 1 - d) + [0, needed - x.shape[2 + d]])
        x = x.unfold(2 + d, dilation[d] * (kernel[d] - 1) + 1, stride[d])[..., :: dilation[d]]
        x = x.narrow(2 + d, 0, positions[d])
    x = x.unflatten(1, (groups, -1))  # image group channel *positions *kernel
    order = [0, *range(3, 3 + spaces), 1, 2, *range(3 + spaces, 3 + 2 * spaces)]
    x = x.permute(order)
    return x.reshape(len(images), -1, groups, x[0].numel() // (groups * max(1, _product(positions))))


@dataclass(frozen=True)
class Convolution:
    """Forward: patches of the data meet output gradients. Transposed: the data meets patches of the gradients."""

    data: Tensor
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    transposed: bool
    example_axes: tuple[int, ...] = (0,)

    def factor(self, gradients: Tensor, layout: Layout, examples: int, shape: torch.Size) -> Outer:
        rows = Rows(layout, examples, 0, gradients.shape[1:])
        outputs, images = gradients.shape[:2]
        flat = gradients.flatten(0, 1)
        if self.transposed:
            a = self._channels_last(self.data)
            b = self._patches(flat, list(self.data.shape[2:]))
        else:
            a = self._patches(self.data, list(gradients.shape[3:]))
            b = self._channels_last(flat)
        a = rows.sort(a, 0).flatten(1, 2)  # example position group into
        b = rows.sort(b.unflatten(0, (outputs, images)), 1).flatten(2, 3)
        return Outer(a, b, flipped=self.transposed)

    def _patches(self, images: Tensor, positions: list[int]) -> Tensor:
        return patches(images, self.kernel, self.stride, self.padding, self.dilation, positions, self.groups)

    def _channels_last(self, images: Tensor) -> Tensor:
        return images.flatten(2).transpose(1, 2).unflatten(2, (self.groups, -1))


def _convolution(node: Any, slot: int) -> Reading | None:
    if slot == 2:
        return Broadcast(None, channel=True)
    if slot != 1:
        return None
    return Convolution(
        node._saved_input,
        list(node._saved_weight.shape[2:]),
        list(node._saved_stride),
        list(node._saved_padding),
        list(node._saved_dilation),
        node._saved_groups,
        bool(node._saved_transposed),
    )


def _product(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


RULES = {"ConvolutionBackward0": _convolution}
