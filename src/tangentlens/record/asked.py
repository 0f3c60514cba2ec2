"""What a recorder was handed, checked at the border before anything is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import index
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.errors import BadInput, NonFiniteKernel
from tangentlens.record.measure import Measure
from tangentlens.record.schedule import Schedule


def inputs_and_targets(probe: Any) -> tuple[Any, Any]:
    """A probe's two halves: inputs in the form the model takes them, and targets or None."""
    if isinstance(probe, tuple):
        if len(probe) != 2:
            raise BadInput(
                f"probe= is the inputs, or (inputs, targets), got a tuple of {len(probe)}; "
                "a model that takes several inputs gets ((first, second, ...), targets or None)"
            )
        return probe
    if probe is None:
        raise BadInput("probe= is the inputs to measure on, or (inputs, targets), got None; give a batch of the data")
    if isinstance(probe, Mapping) and "labels" in probe:  # Hugging Face's place for targets
        return {name: value for name, value in probe.items() if name != "labels"}, probe["labels"]
    return probe, None


def check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise BadInput(
            f"a recorder follows a torch.nn.Module, got {type(model).__name__}; hand over the module being trained"
        )


def check_plan(schedule: Any, budget: Any) -> None:
    """A schedule that is one, and a budget that is a share of the run time."""
    if schedule is not None and not isinstance(schedule, Schedule):
        raise BadInput(
            f"schedule= is made by every, at, log_spaced, when, when_changed or either, got {schedule!r}; "
            "as in schedule=tangentlens.every(100)"
        )
    if budget is not None and not (isinstance(budget, int | float) and budget > 0):
        raise BadInput(
            f"budget= is a share of the run time above 0, got {budget!r}; as in budget=0.1, or None for no bound"
        )


def whole(step: Any) -> int:
    """A step as a number that counts: numpy's and torch's integers too."""
    try:
        number = index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise TypeError(f"a step is a whole number from 0 on, got {step!r}; count the updates of the run")
    return number


def check_targets(targets: Any, examples: int) -> None:
    """One target for each example of the inputs."""
    if targets is not None and (not isinstance(targets, Tensor) or targets.ndim == 0 or len(targets) != examples):
        got = tuple(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__
        raise BadInput(
            f"targets are a tensor with one row for each of the {examples} examples, got {got}; "
            "a model that takes a pair of inputs gets probe=((first, second), None)"
        )


def check_classes(measures: tuple[Measure, ...], targets: Any, outputs: Callable[[], int]) -> None:
    """Targets that measures read as classes have an output each; the outputs are only counted where that matters."""
    asked = any("targets" in measure.needs for measure in measures)
    if not asked or targets is None or targets.is_floating_point() or targets.numel() != len(targets):
        return
    low, high, count = int(targets.min()), int(targets.max()), outputs()
    if count > 1 and not 0 <= low <= high < count:
        raise BadInput(
            f"targets are classes from 0 to {count - 1}, one for each output, got {low} to {high}; "
            "leave out the examples without a class, or give outputs= the numbers the targets count"
        )


def check_measures(measures: tuple[Any, ...], targets: Any) -> None:
    """Measures every one, every variable once, and none that lacks what it needs."""
    other = next((measure for measure in measures if not isinstance(measure, Measure)), None)
    if other is not None:
        raise BadInput(
            f"measures= is a list of Measure, got {other!r} among them; ready-made ones are in "
            "tangentlens.record.instruments, as in [*training(), *tangent()]"
        )
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


def names_of_training(measures: tuple[Measure, ...]) -> frozenset[str]:
    """Names in /training that are no scalar's: its coordinates, and what measures write there."""
    inside = [measure for measure in measures if measure.name.startswith("training/")]
    along = {name for measure in inside for name in (*measure.dims, *measure.coords)}
    return frozenset({"step", "layer"} | along | {measure.name.split("/")[1] for measure in inside})


def check_single(scalars: Mapping[str, Any], taken: frozenset[str] = frozenset()) -> None:
    """Tensors are only looked at, not read: reading one waits for the device, at every step."""
    for name, value in scalars.items():
        if not is_single(value) or "/" in name:
            raise TypeError(
                f"observe() takes single numbers beside the step, got {_kind(value)} for {name}; "
                "record arrays with a Measure"
            )
        if name in taken:
            raise ValueError(
                f"observe() takes numbers under names of their own, got {name}, which the record's /training group "
                f"uses itself; rename it, as in my_{name}="
            )


def is_single(value: Any) -> bool:
    """Whether this is one number, told without reading it."""
    if isinstance(value, Tensor) or hasattr(value, "shape"):
        return math.prod(value.shape) == 1
    return hasattr(value, "__float__")


def _kind(value: Any) -> str:
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"{type(value).__name__}{shape}"


def numbers(scalars: Mapping[str, Any]) -> dict[str, float]:
    """Scalars of a training loop as numbers; this waits for the device they are on."""
    read = {name: value.detach() if isinstance(value, Tensor) else value for name, value in scalars.items()}
    return {name: float(value.item() if hasattr(value, "item") else value) for name, value in read.items()}
