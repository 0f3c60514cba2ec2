"""Small training runs that the tests of the record share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tangentlens.record import Measure, Recorder, Snapshot, every
from tangentlens.record.schedule import Schedule


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def small_probe(examples: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(examples, 6, generator=generator), torch.randint(3, (examples,), generator=generator)


def first_weight_norm(snapshot: Snapshot) -> torch.Tensor:
    return next(snapshot.model.parameters()).norm()


NORM = Measure("mine/norm", (), first_weight_norm)


def trained(
    model: nn.Module,
    recorder: Recorder | None,
    steps: Iterable[int],
    loss: Callable[..., torch.Tensor] = functional.cross_entropy,
    train_mode: bool = True,
) -> nn.Module:
    """Full-batch SGD with momentum; step i is the state after i updates."""
    inputs, targets = small_probe()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.train(train_mode)
    for step in steps:
        value = loss(model(inputs), targets)
        if step:
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        if recorder is not None:
            recorder.observe(step, loss=value)
    return model


def recorded(
    run: Path,
    measures: Iterable[Measure] | None = (NORM,),
    schedule: Schedule | None = None,
    steps: int = 5,
    **settings: Any,
) -> Path:
    """A finished run of a small model."""
    model = small_model()
    with Recorder(run, model, small_probe(), measures, schedule or every(1), **settings) as recorder:
        trained(model, recorder, range(steps))
    return run


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in model.state_dict().values()]


def identical(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(torch.equal(one, other) for one, other in zip(left, right, strict=True))
