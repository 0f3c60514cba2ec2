"""Training on the chain task: gradient descent over initial scales, speed limits, and the baselines beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from tangentlens.optimizers import SpeedLimited
from tangentlens.studies.beaglehole2024.chain import Chain
from tangentlens.studies.beaglehole2024.chain_readings import Batch, Drawn, chain_readings, drawn, error, first_layer
from tangentlens.studies.beaglehole2024.networks import relu_network


@dataclass(frozen=True)
class Setting:
    """One way to train: gradient descent on the full batch unless said otherwise."""

    name: str
    scale: float = 1.0
    rate: float = 0.05
    steps: int = 800
    speeds: tuple[tuple[str, float], ...] = ()
    first_layer_rate: float | None = None
    batch: int | None = None
    adam: bool = False


# The source states the three constants alone. Rates and steps are ours: full batch, to a training error below 1 %, and
# a rate in inverse proportion to the initial scale, for the start of a small network is slow.
SPEED_LIMITS = (("0", 500.0), ("2", 0.002), ("4", 0.002))
LIMITED = Setting("speed-limited", rate=1e-4, speeds=SPEED_LIMITS)
SETTINGS = (
    Setting("plain"),
    Setting("half init", scale=0.5, rate=0.1),
    Setting("quarter init", scale=0.25, rate=0.2),
    Setting("double init", scale=2.0, rate=0.0125),
    LIMITED,
    replace(LIMITED, name="frozen above", speeds=(("0", 500.0), ("*", 0.0))),
    Setting("layer-wise rates", rate=1.2e-5, first_layer_rate=3.0, steps=1200),
)
"""Plain training at four scales, the paper's speed limits, and two baselines that hold the upper layers still."""
BEYOND = (Setting("batch 64", batch=64), Setting("batch 8", batch=8, steps=1600), Setting("Adam", adam=True, rate=1e-3))
"""What the paper leaves open: batch size and an adaptive optimiser, at torch's default scale."""


@dataclass(frozen=True)
class ChainRun:
    """One trained network: readings by step (the null beside each), and what the target and the test set say of it."""

    setting: Setting
    seed: int
    steps: list[int]
    readings: list[dict[str, float]]

    def at(self, name: str, step: Literal["first", "last"] = "last") -> float:
        """A reading after the first or the last step."""
        return self.readings[-1 if step == "last" else 1][name]


def chain_run(
    setting: Setting,
    seed: int,
    *,
    chain: Chain | None = None,
    examples: int = 512,
    width: int = 256,
    draws: int = 50,
    times: Sequence[float] = (0.01, 0.03, 0.1, 0.3),
) -> ChainRun:
    """Train on `examples` with the full batch; read at step 0, 1, the given shares of the steps, and the end."""
    data = drawn(chain or Chain(), examples, seed)
    network = relu_network(data.chain.inputs, width=width, scale=setting.scale, seed=seed)
    initial = first_layer(network, data)
    wanted = sorted({0, 1, setting.steps} | {max(2, round(share * setting.steps)) for share in times})
    readings = []
    for step in training(network, setting, data, seed):
        if step in wanted:
            readings.append(chain_readings(network, data, initial.weight, initial.ptk_covariance, draws, step))
    return ChainRun(setting, seed, wanted, readings)


def training(network: nn.Sequential, setting: Setting, data: Drawn, seed: int) -> Iterator[int]:
    """Train the network in place, and say each step as it is reached, 0 being the start."""
    optimizer = _optimizer(network, setting)
    generator = torch.Generator().manual_seed(seed)
    yield 0
    for step in range(1, setting.steps + 1):
        optimizer.zero_grad()
        error(network, _batch(data.train, setting.batch, generator)).backward()
        optimizer.step()
        yield step


def _batch(train: Batch, batch: int | None, generator: torch.Generator) -> Batch:
    if batch is None:
        return train
    rows = torch.randperm(len(train[0]), generator=generator)[:batch]
    return train[0][rows], train[1][rows]


def _optimizer(network: nn.Sequential, setting: Setting) -> torch.optim.Optimizer:
    if setting.adam:
        return torch.optim.Adam(network.parameters(), lr=setting.rate)
    if setting.first_layer_rate is not None:
        first, *rest = network.parameters()
        groups = [{"params": [first], "lr": setting.first_layer_rate}, {"params": rest, "lr": setting.rate}]
        return torch.optim.SGD(groups)
    plain = torch.optim.SGD(network.parameters(), lr=setting.rate)
    return SpeedLimited(plain, network, dict(setting.speeds)) if setting.speeds else plain
