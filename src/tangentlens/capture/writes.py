"""A forward pass that writes its own parameters (max_norm, clamping) is caught before it writes the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class ParametersWritten(Exception):
    """The model is about to change a parameter in place; nothing has been changed yet."""


class ParametersGuarded(TorchDispatchMode):
    """Inside, an operation that would write to the memory of a parameter raises instead."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, a second and 40 MB; nothing compiled runs while we measure

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.places = {place for p in model.parameters() if (place := _place(p))}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        mutable = isinstance(func, torch._ops.OpOverload) and func._schema.is_mutable
        if mutable and any(_place(tensor) in self.places for tensor in _written(func, args, kwargs)):
            raise ParametersWritten(str(func))
        return func(*args, **kwargs)


def _written(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors an operation changes in place, by its schema."""
    found: list[Any] = []
    for position, argument in enumerate(func._schema.arguments):  # type: ignore[attr-defined]
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += tree_leaves(args[position] if position < len(args) else kwargs.get(argument.name))
    return [value for value in found if isinstance(value, Tensor)]


def _place(tensor: Tensor) -> int:
    """Where a tensor's memory starts; 0 where it has none of its own (meta, sparse and wrapped tensors)."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0
