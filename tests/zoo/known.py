"""What is known of each entry: its float64 Jacobian by brute force, found once per process."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from tests.reference import tangent
from tests.zoo import BY_NAME, ENTRIES

NAMES = [entry.name for entry in ENTRIES]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}  # relative Frobenius


@cache
def known_jacobian(name: str) -> tangent.Jacobian:
    model, inputs = BY_NAME[name].built(torch.float64)
    return tangent.jacobian(model, inputs, BY_NAME[name].outputs)


@cache
def known_mean_output_jacobian(name: str) -> tangent.Jacobian:
    model, inputs = BY_NAME[name].built(torch.float64)
    return tangent.mean_output_jacobian(model, inputs, BY_NAME[name].outputs)


def rows_and_columns(name: str) -> tuple[list[int], list[int]]:
    """All examples but the last against the last two: one example is on both sides."""
    count = len(next(iter(known_jacobian(name).values())))
    return list(range(count - 1)), [count - 1, count - 2]


def measured(name: str, dtype: torch.dtype) -> tuple[nn.Module, Any, dict[str, Any]]:
    """The model, its inputs, and the keywords every kernel function takes for it."""
    model, inputs = BY_NAME[name].built(dtype)
    return model, inputs, {"outputs": BY_NAME[name].outputs}


def off(found: Tensor, true: Tensor) -> float:
    """Relative Frobenius error."""
    assert found.shape == true.shape, f"shape {tuple(found.shape)}, expected {tuple(true.shape)}"
    return float((found.double() - true).norm() / true.norm())
