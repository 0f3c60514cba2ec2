"""One precision all the way: a model measured in float64 must not round to float32 on the way, nor to bfloat16 one of
half precision that is measured in float32.

Layers written for half precision cast up to float32 (RMSNorm, softmax, rotary embeddings); handed float64 the same
line rounds down, and kernels then agree to 1e-8 instead of 1e-15. Inside this mode nothing narrower can be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

HALVES = frozenset({torch.float16, torch.bfloat16})


class Widened(TorchFunctionMode):
    """Whatever asks for a narrower dtype gets this one: casts, constants and the precision of a softmax or a sum."""

    def __init__(self, target: torch.dtype, narrower: frozenset[torch.dtype]) -> None:
        super().__init__()
        self.instead = dict.fromkeys(narrower, target)
        if torch.float32 in narrower:
            self.instead[torch.complex64] = target.to_complex()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if (asked := _CASTS.get(func)) in self.instead:
            return args[0].to(self.instead[asked])
        args = tuple(self._lifted(a) for a in args)
        kwargs = {name: self._lifted(v) for name, v in (kwargs or {}).items()}
        return func(*args, **kwargs)

    def _lifted(self, value: Any) -> Any:
        return self.instead.get(value, value) if isinstance(value, torch.dtype) else value


_CASTS = {
    Tensor.float: torch.float32,
    Tensor.half: torch.float16,
    Tensor.bfloat16: torch.bfloat16,
    Tensor.cfloat: torch.complex64,  # type: ignore[attr-defined]
}


def float64_throughout(model: nn.Module) -> AbstractContextManager[Any]:
    """Around a call of a model whose parameters are float64; nothing for others."""
    floating = [p for p in model.parameters() if p.is_floating_point()]
    exact = floating and all(p.dtype == torch.float64 for p in floating)
    return Widened(torch.float64, frozenset({torch.float32})) if exact else nullcontext()
