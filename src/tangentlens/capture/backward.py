"""Backward passes through a graph that is kept: one combination of the outputs, or several at once.

They call the engine as `torch.autograd.grad` does, without its check of shapes, which are ours here: that check imports
sympy, a quarter of a second and 60 MB before the first kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Place = Any
"""A tensor of the graph, or a GradientEdge."""


def backward(start: Place, cotangent: Tensor, where: Sequence[Place]) -> list[Tensor | None]:
    """One gradient a place, None where the start does not depend on it."""
    return list(_run((start,), (cotangent,), tuple(where)))


def backward_batched(start: Place, cotangents: Tensor, where: Sequence[Place]) -> list[Tensor | None]:
    """The same for cotangents along a leading axis, which the gradients carry too."""
    if _engine is None:
        found = torch.autograd.grad(
            (start,), tuple(where), (cotangents,), retain_graph=True, allow_unused=True, is_grads_batched=True
        )
    else:
        found = _vmap(lambda one: _run((start,), (one,), tuple(where)), 0, 0, allow_none_pass_through=True)(cotangents)
    return list(found)


def _run(start: tuple[Place, ...], cotangents: tuple[Tensor, ...], where: tuple[Place, ...]) -> Sequence[Tensor | None]:
    if _engine is None:
        return torch.autograd.grad(start, where, cotangents, retain_graph=True, allow_unused=True)
    return tuple(_engine(start, cotangents, True, False, where, True, accumulate_grad=False))


_engine: Any
_vmap: Any
try:  # private to torch: where it has moved, the public function gives the same gradients
    from torch._vmap_internals import _vmap
    from torch.autograd.graph import _engine_run_backward as _engine
except ImportError:
    _engine = None
