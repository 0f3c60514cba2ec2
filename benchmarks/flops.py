"""Counted operations, and how many of them this machine does per second: together a floor under every time."""

from __future__ import annotations

import time
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


def counted_flops() -> FlopCounterMode:
    """Counts every matrix product and convolution (a multiply and an add are two), the in-place ones too."""
    own = {
        torch.ops.aten.addmm_: _matrix_product,
        torch.ops.aten.baddbmm_: _batched_matrix_product,
        torch.ops.aten.convolution_backward: _convolution_backward,
    }
    return FlopCounterMode(display=False, custom_mapping=own)


def _matrix_product(result: Any, left: Any, right: Any, *_: Any, **__: Any) -> int:
    return 2 * left[0] * left[1] * right[1]


def _batched_matrix_product(result: Any, left: Any, right: Any, *_: Any, **__: Any) -> int:
    return 2 * left[0] * left[1] * left[2] * right[2]


def _convolution_backward(
    signal: Any, inputs: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, wanted: list[bool], **_: Any,
) -> int:  # fmt: skip
    """The gradients of input and weight, each as many as the convolution itself. torch's own count leaves groups out,
    and vmap turns examples into groups."""
    places = inputs[2:] if transposed else signal[2:]
    return 2 * int(signal[0]) * prod(places) * prod(weight) * sum(wanted[:2])


def matmul_rate(size: int = 2048) -> float:
    """Operations per second of a large float32 matrix product, here and now."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)
