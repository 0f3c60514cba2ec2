"""The examples a model is measured on: a tensor, a tuple or a dict, example axis first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def differentiable(self) -> Probe:
        """A copy whose floating tensors carry a graph: data then shows itself in it, and the user's tensors stay his.

        A clone of a leaf, not the leaf: models may work in place on their input.
        """
        return Probe(
            _map(self.inputs, lambda t: t.detach().requires_grad_().clone() if t.is_floating_point() else t.clone()),
            self.length,
        )

    def moved(self, device: torch.device, dtype: torch.dtype) -> Probe:
        return Probe(
            _map(self.inputs, lambda t: t.to(device, dtype) if t.is_floating_point() else t.to(device)), self.length
        )


def probe(inputs: Inputs | Probe) -> Probe:
    """Check the inputs at the border: every tensor in them has the same number of examples on its first axis."""
    if isinstance(inputs, Probe):
        return inputs
    lengths = {name: len(t) for name, t in _tensors(inputs) if t.ndim > 0}
    if not lengths:
        raise TypeError(
            "inputs must be a tensor, or a tuple or dict that holds one, example axis first; "
            f"got {type(inputs).__name__}"
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


def _tensors(inputs: Inputs) -> list[tuple[str, Tensor]]:
    if isinstance(inputs, Tensor):
        return [("inputs", inputs)]
    items = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return [(f"inputs[{key!r}]", value) for key, value in items if isinstance(value, Tensor)]


def _map(inputs: Inputs, change: Any) -> Inputs:
    """Apply to every tensor that has an example axis; flags, numbers and None pass through as they are."""

    def one(value: Any) -> Any:
        return change(value) if isinstance(value, Tensor) and value.ndim > 0 else value

    if isinstance(inputs, Tensor):
        return one(inputs)
    if isinstance(inputs, Mapping):
        return {key: one(value) for key, value in inputs.items()}
    return tuple(one(value) for value in inputs)
