"""Float64 all the way: a model measured in float64 must not round to float32 on the way.

Layers written for half precision cast up to float32 (RMSNorm, softmax, rotary embeddings); handed float64 the same
line rounds down, and kernels then agree to 1e-8 instead of 1e-15. Inside this mode float32 cannot be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class Float64Throughout(TorchFunctionMode):
    """Whatever asks for float32 gets float64: casts, constants and the precision of a softmax or a sum."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.float:
            return args[0].double()
        if func is torch.Tensor.cfloat:  # type: ignore[attr-defined]
            return args[0].cdouble()
        args = tuple(_lifted(a) for a in args)
        kwargs = {name: _lifted(v) for name, v in (kwargs or {}).items()}
        return func(*args, **kwargs)


def _lifted(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else torch.complex128 if value is torch.complex64 else value


def float64_throughout(model: nn.Module) -> AbstractContextManager[Any]:
    """Around a call of a model whose parameters are float64; nothing for others."""
    floating = [p for p in model.parameters() if p.is_floating_point()]
    return Float64Throughout() if floating and all(p.dtype == torch.float64 for p in floating) else nullcontext()
