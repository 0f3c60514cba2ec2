"""What a recorder was handed, checked at the border before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.errors import BadInput, NonFiniteKernel
from tangentlens.record.measure import Measure


def inputs_and_targets(probe: Any) -> tuple[Any, Any]:
    """A probe's two halves: inputs in the form the model takes them, and targets or None."""
    if isinstance(probe, tuple):
        if len(probe) != 2:
            raise BadInput(
                f"probe= is the inputs, or (inputs, targets), got a tuple of {len(probe)}; "
                "a model that takes several inputs gets ((first, second, ...), targets or None)"
            )
        return probe
    if isinstance(probe, Mapping) and "labels" in probe:  # Hugging Face's place for targets
        return {name: value for name, value in probe.items() if name != "labels"}, probe["labels"]
    return probe, None


def check_targets(targets: Any, examples: int) -> None:
    """One target for each example of the inputs."""
    if targets is not None and (not isinstance(targets, Tensor) or targets.ndim == 0 or len(targets) != examples):
        got = tuple(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__
        raise BadInput(
            f"targets are a tensor with one row for each of the {examples} examples, got {got}; "
            "a model that takes a pair of inputs gets probe=((first, second), None)"
        )


def check_measures(measures: tuple[Measure, ...], targets: Any) -> None:
    """Every variable once, and none that lacks what it needs."""
    names = [measure.name for measure in measures]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"each variable once, got {', '.join(twice)} twice; rename one of the measures")
    wanting = [measure.name for measure in measures if "targets" in measure.needs and targets is None]
    if wanting:
        raise BadInput(f"{', '.join(wanting)} need targets, got a probe without; give probe=(inputs, targets)")


def check_finite(outputs: Float[Tensor, "example output"]) -> None:
    """No inf or nan among the outputs; the message names the first place."""
    broken = ~torch.isfinite(outputs)
    if bool(broken.any()):
        example, output = torch.nonzero(broken)[0].tolist()
        raise NonFiniteKernel(
            f"the model's outputs must be finite, got {outputs[example, output].item()} at example {example}, "
            f"output {output}; look at that example's inputs and at the weights"
        )


def check_single(scalars: Mapping[str, Any]) -> None:
    """Tensors are only looked at, not read: reading one waits for the device, at every step."""
    for name, value in scalars.items():
        single = value.numel() == 1 if isinstance(value, Tensor) else hasattr(value, "__float__")
        if not single or "/" in name:
            raise TypeError(
                f"observe() takes single numbers beside the step, got {type(value).__name__} for {name}; "
                "record arrays with a Measure"
            )


def numbers(scalars: Mapping[str, Any]) -> dict[str, float]:
    """Scalars of a training loop as numbers; this waits for the device they are on."""
    return {name: float(value.detach() if isinstance(value, Tensor) else value) for name, value in scalars.items()}
