"""Matrix products: linear, addmm, matmul, einsum, bmm, recurrent maps. Result rows belong to examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlens.capture.factors import Outer
from tangentlens.capture.layout import Layout
from tangentlens.capture.rules.elementwise import Broadcast
from tangentlens.capture.rules.reading import Reading, Rows


@dataclass(frozen=True)
class Product:
    """a @ W, with the data a (group row into) and the result (group row out), or its mirror image W @ a.

    `flipped` says that the weight is stored (into out); `mirrored` that rows of the result lie on its last axis.
    """

    data: Tensor
    flipped: bool
    mirrored: bool
    grouped: bool
    scale: float = 1.0

    @property
    def row_axis(self) -> int:
        return (1 if self.mirrored else 0) + (1 if self.grouped else 0)

    @property
    def example_axes(self) -> tuple[int, ...]:
        return (self.row_axis,)

    def factor(self, gradients: Tensor, layout: Layout, examples: int, shape: torch.Size) -> Outer:
        rows = Rows(layout, examples, self.row_axis, gradients.shape[1:])
        b = gradients if self.grouped else gradients[:, None]
        b = b.transpose(2, 3) if self.mirrored else b  # output group row out
        a = self.data if self.grouped else self.data[None]
        b = rows.sort(b, 2).permute(0, 1, 3, 2, 4)  # example output position group out
        a = rows.sort(a, 1).permute(0, 2, 1, 3)
        return Outer(a, b * self.scale if self.scale != 1 else b, self.flipped)


def _mm(node: Any, slot: int) -> Reading | None:
    if slot == 1:
        return Product(node._saved_self, flipped=True, mirrored=False, grouped=False)
    return Product(node._saved_mat2.t(), flipped=False, mirrored=True, grouped=False)


def _addmm(node: Any, slot: int) -> Reading | None:
    if slot == 0:
        return Broadcast(None, float(node._saved_beta))
    scale = float(node._saved_alpha)
    if slot == 2:
        return Product(node._saved_mat1, flipped=True, mirrored=False, grouped=False, scale=scale)
    return Product(node._saved_mat2.t(), flipped=False, mirrored=True, grouped=False, scale=scale)


def _bmm(node: Any, slot: int) -> Reading | None:
    if slot == 1:
        return Product(node._saved_self, flipped=True, mirrored=False, grouped=True)
    return Product(node._saved_mat2.mT, flipped=False, mirrored=True, grouped=True)


def _baddbmm(node: Any, slot: int) -> Reading | None:
    if slot == 0:
        return Broadcast(None, float(node._saved_beta))
    scale = float(node._saved_alpha)
    if slot == 2:
        return Product(node._saved_batch1, flipped=True, mirrored=False, grouped=True, scale=scale)
    return Product(node._saved_batch2.mT, flipped=False, mirrored=True, grouped=True, scale=scale)


@dataclass(frozen=True)
class Weighted:
    """data @ vector: each row of the data is the gradient of its result."""

    data: Tensor
    example_axes: tuple[int, ...] = (0,)

    def factor(self, gradients: Tensor, layout: Layout, examples: int, shape: torch.Size) -> Outer:
        rows = Rows(layout, examples, 0, gradients.shape[1:])
        a = rows.sort(self.data, 0)[:, :, None]
        return Outer(a, rows.sort(gradients, 1)[..., None, None])


def _mv(node: Any, slot: int) -> Reading | None:
    return Weighted(node._saved_self) if slot == 1 else None


RULES = {
    "MvBackward0": _mv,
    "MmBackward0": _mm,
    "AddmmBackward0": _addmm,
    "BmmBackward0": _bmm,
    "BaddbmmBackward0": _baddbmm,
}
