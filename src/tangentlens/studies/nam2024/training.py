"""Training by steps, with pauses for measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tangentlens.kernels.features import features


@dataclass(frozen=True)
class Training:
    """How a network is trained; equal steps, not equal epochs, so that the number of examples is not training time."""

    steps: int
    batch: int = 64
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    method: Literal["sgd", "adamw"] = "sgd"
    cosine: bool = False
    # summed or averaged over outputs: with C outputs the mean makes the same learning rate C times gentler
    loss: Literal["squared error", "mean squared error", "cross entropy"] = "squared error"
    head_only: bool = False
    # stop as soon as no more than this share of the targets' squares is left, so that trainings end equally far
    enough: float | None = None
    seed: int = 0


# steps between two looks at whether a training has come far enough
CHECK = 20


def trained(
    model: nn.Module, inputs: Tensor, targets: Tensor, how: Training, pauses: Sequence[int] = ()
) -> Iterator[int]:
    """Train, and pause before the step numbers of `pauses` and at the end, in eval mode, for the caller to look.

    Targets are real-valued rows; for cross entropy their largest entry is the class.
    """
    parameters = list(head_parameters(model, inputs) if how.head_only else model.parameters())
    optimizer = _optimizer(parameters, how)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.steps) if how.cosine else None
    distance = _loss(how)
    generator = torch.Generator().manual_seed(how.seed)
    order = torch.empty(0, dtype=torch.long)
    wanted = {*pauses, how.steps}
    for step in range(how.steps + 1):
        ended = step == how.steps
        if how.enough is not None and step % CHECK == 0:
            ended = ended or relative_loss(model, inputs, targets) <= how.enough
        if step in wanted or ended:
            model.eval()
            yield step
        if ended:
            return
        # batch norm of frozen features must not move either
        model.train(not how.head_only)
        if len(order) < min(how.batch, len(inputs)):
            order = torch.randperm(len(inputs), generator=generator)
        rows, order = order[: how.batch].to(inputs.device), order[how.batch :]
        optimizer.zero_grad(set_to_none=True)
        distance(model(inputs[rows]), targets[rows]).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def finished(model: nn.Module, inputs: Tensor, targets: Tensor, how: Training) -> nn.Module:
    """The trained model, in eval mode."""
    for _ in trained(model, inputs, targets, how):
        pass
    return model


def relative_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """What is left of the squared error, over that of a model that says 0."""
    model.eval()
    with torch.no_grad():
        return float((model(inputs) - targets).square().sum() / targets.square().sum())


def head_parameters(model: nn.Module, inputs: Tensor) -> Iterator[nn.Parameter]:
    """The weights of the last linear map."""
    training = model.training
    model.eval()
    layer = features(model, inputs[:2]).layer
    model.train(training)
    return model.get_submodule(layer).parameters()


def _optimizer(parameters: list[nn.Parameter], how: Training) -> torch.optim.Optimizer:
    if how.method == "adamw":
        return torch.optim.AdamW(
            parameters, lr=how.learning_rate, weight_decay=how.weight_decay, betas=(0.9, 0.98), foreach=True
        )
    return torch.optim.SGD(
        parameters, lr=how.learning_rate, momentum=how.momentum, weight_decay=how.weight_decay, foreach=True
    )


def _loss(how: Training) -> Callable[[Tensor, Tensor], Tensor]:
    if how.loss == "cross entropy":
        return lambda found, wanted: nn.functional.cross_entropy(found, wanted.argmax(1))
    if how.loss == "mean squared error":
        return nn.functional.mse_loss
    return lambda found, wanted: (found - wanted).square().sum(1).mean()
