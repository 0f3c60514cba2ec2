"""One look at a network: its forward features on a set of examples, beside accuracy and the usual baselines."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.kernels.features import stream_features
from tangentlens.measures.feature_change import initial_similarity, squared_norm
from tangentlens.measures.forward_moments import forward_moments
from tangentlens.measures.forward_reading import ForwardReading, forward_reading
from tangentlens.measures.jackknife import Interval, jackknife

ROWS = 500
GROUPS = 10


@dataclass(frozen=True)
class Look:
    """What one network looks like at one step; `distance` is D_LR as the paper defines it, `similarity` S_init.

    `known` is the accuracy on the examples looked at, `accuracy` that on fresh ones where the audience has them.
    """

    step: int
    forward: ForwardReading
    accuracy: float
    parameter_norm: float
    similarity: Interval
    known: float

    @property
    def distance(self) -> float:
        return self.forward.paper.distance

    @property
    def constant(self) -> str:
        """What leaves D_LR without a value: features that do not vary have none with any head, either."""
        return "features" if math.isnan(self.forward.random_head) else "outputs"

    @property
    def used(self) -> float:
        """Pi-hat(C): the part of the learned function in as few modes as could hold it."""
        curve = self.forward.cumulative_utilisation
        return at_expected(curve, self.forward.expected_modes)

    @property
    def quality(self) -> float:
        """Pi*(C): the part of the target in as many modes."""
        curve = self.forward.cumulative_quality
        assert curve is not None
        return at_expected(curve, self.forward.expected_modes)


def at_expected(curve: Float[Tensor, "mode"], modes: int) -> float:
    """A cumulated curve at a number of modes, or at its end; nan for dead features, which have none."""
    return float(curve[:modes][-1]) if len(curve) else math.nan


@dataclass(frozen=True, eq=False)
class Audience:
    """The examples a network is looked at with, and its features on them before training.

    Accuracy is that on these examples, or on `fresh` ones (inputs and targets) where they are given.
    """

    inputs: Tensor
    targets: Float[Tensor, "example output"]
    initial: Float[Tensor, "example unit"]
    layer: str | None = None
    fresh: tuple[Tensor, Tensor] | None = None


def audience(
    model: nn.Module, inputs: Tensor, targets: Tensor, layer: str | None = None, *,
    fresh: tuple[Tensor, Tensor] | None = None,
) -> Audience:  # fmt: skip
    """Fix the examples and remember the initial features; call it before training."""
    model.eval()
    values = [found.values for found in stream_features(model, inputs.split(ROWS), layer, places="mean")]
    return Audience(inputs, targets, torch.cat(values), layer, fresh)


def look(model: nn.Module, at: Audience, step: int = 0, *, initial: float | None = None) -> Look:
    """Measure in one pass; examples are dealt into groups for the interval."""
    values, outputs = [], []
    for found in stream_features(model, at.inputs.split(ROWS), at.layer, places="mean"):
        values.append(found.values)
        outputs.append(found.outputs)
    features, learned = torch.cat(values), torch.cat(outputs)
    groups = [
        forward_moments(features[g::GROUPS], learned[g::GROUPS], at.targets[g::GROUPS], initial=at.initial[g::GROUPS])
        for g in range(GROUPS)
    ]
    known = accuracy(learned, at.targets)
    right = known if at.fresh is None else accuracy(outputs_of(model, at.fresh[0]), at.fresh[1])
    reading, norm = forward_reading(groups, initial=initial), squared_norm(model.parameters())
    return Look(step, reading, right, norm, jackknife(groups, initial_similarity), known)


def outputs_of(model: nn.Module, inputs: Tensor) -> Tensor:
    return torch.cat([found.outputs for found in stream_features(model, inputs.split(ROWS))])


def accuracy(outputs: Float[Tensor, "example output"], targets: Float[Tensor, "example output"]) -> float:
    """Share of examples whose largest output is the right one; for a single output the explained variance."""
    if outputs.shape[1] == 1:
        residual = (outputs - targets).square().mean() / (targets - targets.mean()).square().mean()
        return 1 - float(residual)
    return float((outputs.argmax(1) == targets.argmax(1)).double().mean())
