"""What one model of the zoo is, and how it is built the same way every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Entry:
    """A model, five or fewer examples, and the reason it is here."""

    name: str
    build: Callable[[], tuple[nn.Module, Any]]
    notes: str
    outputs: Callable[[Any], Tensor] | None = None

    def built(self, dtype: torch.dtype) -> tuple[nn.Module, Any]:
        """The same numbers in either dtype: built in float32, then converted: one float64 reference serves both."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model, inputs = self.build()
            with torch.no_grad():
                for parameter in model.parameters():  # scales of one and biases of zero would hide mistakes
                    parameter.add_(0.1 * torch.randn_like(parameter))
        return model._apply(lambda tensor: converted(tensor, dtype)), converted(inputs, dtype)


def entry(notes: str, outputs: Callable[[Any], Tensor] | None = None) -> Callable[[Callable], Entry]:
    return lambda build: Entry(build.__name__, build, notes, outputs)


def converted(inputs: Any, dtype: torch.dtype) -> Any:
    if isinstance(inputs, dict):
        return {name: converted(value, dtype) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(converted(value, dtype) for value in inputs)
    if not isinstance(inputs, Tensor) or not (inputs.is_floating_point() or inputs.is_complex()):
        return inputs
    return inputs.to(dtype.to_complex() if inputs.is_complex() else dtype)


class Written(nn.Module):
    """A model written as one function of its parts: tensors become parameters, modules become children."""

    def __init__(self, forward: Callable, **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.written = forward
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, Tensor) else part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.written(self, *args, **kwargs)


def mlp(*widths: int, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(fan_in, fan_out), activation()]
    return nn.Sequential(*layers[:-1])
