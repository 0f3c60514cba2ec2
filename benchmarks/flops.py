"""Counted operations, and how many of them this machine does per second: together a floor under every time."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


def counted_flops() -> FlopCounterMode:
    """Counts every matrix product and convolution (a multiply and an add are two), the in-place ones too."""
    in_place = {torch.ops.aten.addmm_: _matrix_product, torch.ops.aten.baddbmm_: _batched_matrix_product}
    return FlopCounterMode(display=False, custom_mapping=in_place)


def _matrix_product(result: Any, left: Any, right: Any, *_: Any, **__: Any) -> int:
    return 2 * left[0] * left[1] * right[1]


def _batched_matrix_product(result: Any, left: Any, right: Any, *_: Any, **__: Any) -> int:
    return 2 * left[0] * left[1] * left[2] * right[2]


def matmul_rate(size: int = 2048) -> float:
    """Operations per second of a large float32 matrix product, here and now."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)
