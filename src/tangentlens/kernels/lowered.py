"""How far a kernel in a lower precision is from the one in float32: measured on its first examples, never assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tangentlens.capture.precision import in_float32, lowered
from tangentlens.distributed import ALONE
from tangentlens.kernels.blockwise import Blockwise
from tangentlens.kernels.stored import StoredKernel

_FEW = 8


def state_error(work: Blockwise, kernels: Mapping[str, Tensor | StoredKernel]) -> None:
    """Add this kernel's error to those of the `lower_precision` around it, if there is one."""
    asked = lowered()
    if asked is None:
        return
    rows = work.rows.rows(0, min(_FEW, work.rows.length))
    columns = None if work.columns is None else work.columns.rows(0, min(_FEW, work.columns.length))
    with in_float32():
        exact = replace(work, rows=rows, columns=columns, job=ALONE, finite=True).kernels()
    off = torch.stack([_first(kernels[group], kernel) - kernel for group, kernel in exact.items()])
    asked.errors.append(float(off.norm() / torch.stack(list(exact.values())).norm()))


def _first(kernel: Tensor | StoredKernel, like: Tensor) -> Tensor:
    """The part of a kernel that belongs to its first examples."""
    rows = kernel.rows(0, len(like)) if isinstance(kernel, StoredKernel) else kernel[: len(like)]
    half = like.ndim // 2
    return rows.narrow(half, 0, like.shape[half]).to(like)
