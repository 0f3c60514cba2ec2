"""The examples a model is measured on: a tensor, a tuple or a dict, example axis first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Inputs = Tensor | Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Probe:
    """Inputs in the form the model takes them, of known length, that can be cut along the example axis."""

    inputs: Inputs
    length: int

    def rows(self, start: int, stop: int) -> Probe:
        return Probe(_map(self.inputs, lambda t: t[start:stop]), min(stop, self.length) - start)

    def chosen(self, indices: list[int]) -> Probe:
        return Probe(_map(self.inputs, lambda t: t[torch.as_tensor(indices, device=t.device)]), len(indices))

    def call(self, model: nn.Module) -> Any:
        if isinstance(self.inputs, Tensor):
            return model(self.inputs)
        if isinstance(self.inputs, Mapping):
            return model(**self.inputs)
        return model(*self.inputs)

    def copied(self) -> Probe:
        """The user's tensors stay his: models may work in place on their input."""
        return Probe(_map(self.inputs, lambda t: t.detach().clone()), self.length)

    def differentiable(self) -> Probe:
        """A copy whose floating tensors carry a graph: data then shows itself in it.

        A clone of a leaf, not the leaf: models may work in place on their input.
        """

        def one(t: Tensor) -> Tensor:
            return t.detach().requires_grad_().clone() if t.is_floating_point() or t.is_complex() else t.clone()

        return Probe(_map(self.inputs, one), self.length)

    def moved(self, device: torch.device, dtype: torch.dtype) -> Probe:
        return Probe(_map(self.inputs, lambda t: t.to(device, of_precision(t.dtype, dtype))), self.length)


def of_precision(dtype: torch.dtype, real: torch.dtype) -> torch.dtype:
    """The dtype of a tensor when real numbers are `real`: complex ones go with them, whole ones stay."""
    return real.to_complex() if dtype.is_complex else real if dtype.is_floating_point else dtype


def probe(inputs: Inputs | Probe) -> Probe:
    """Check the inputs at the border: every tensor in them has the same number of examples on its first axis."""
    if isinstance(inputs, Probe):
        return inputs
    lengths = {name: len(t) for name, t in tensors_in(inputs).items() if t.ndim > 0}
    if not lengths:
        got = "one without axes" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise TypeError(
            f"inputs must be a tensor, or a tuple or dict that holds one, example axis first; got {got}; give a "
            "single example an axis of length 1"
        )
    if len(set(lengths.values())) > 1:
        raise ValueError(
            "every tensor of the inputs must have the same number of examples on its first axis, got "
            + ", ".join(f"{name}: {length}" for name, length in lengths.items())
            + "; repeat or cut the shorter ones (constants belong inside the model)"
        )
    length = next(iter(lengths.values()))
    if length == 0:
        raise ValueError("inputs must hold at least one example, got an empty first axis; pass some examples")
    return Probe(inputs, length)


def tensors_in(inputs: Any, name: str = "inputs") -> dict[str, Tensor]:
    """Every tensor, however deep, by the place where it lies: `inputs[1]['x']`."""
    if isinstance(inputs, Tensor):
        return {name: inputs}
    if isinstance(inputs, str) or not isinstance(inputs, Mapping | Sequence):
        return {}
    items = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return {key: t for at, value in items for key, t in tensors_in(value, f"{name}[{at!r}]").items()}


def _map(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply to every tensor that has an example axis, however deep; flags, numbers and None pass as they are."""
    if isinstance(inputs, Tensor):
        return change(inputs) if inputs.ndim > 0 else inputs
    if isinstance(inputs, Mapping):
        return {key: _map(value, change) for key, value in inputs.items()}
    if isinstance(inputs, str) or not isinstance(inputs, Sequence):
        return inputs
    mapped = [_map(value, change) for value in inputs]
    if hasattr(inputs, "_fields"):  # a named tuple keeps its names
        return type(inputs)(*mapped)
    return mapped if isinstance(inputs, list) else tuple(mapped)
