"""Modular addition learned by a two-layer quadratic network (Gromov, arXiv 2301.02679): data, model, training.

Grokking in seconds: training accuracy is perfect long before test accuracy moves. With less training data the same
network memorises and never generalises, which makes it its own control.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


@dataclass(frozen=True)
class ModularAddition:
    """The task and its training, as in lin2025 (arXiv 2510.00468, all versions); `train_share=0.3` is the control."""

    modulus: int = 29
    width: int = 512
    train_share: float = 0.7
    epochs: int = 500
    learning_rate: float = 0.05
    weight_decay: float = 0.01
    seed: int = 0
    device: str = "cpu"


class QuadraticMLP(nn.Module):
    """f(x) = (1/n) V (W x / sqrt(2p))^2, without biases, all weights N(0, 1); x holds two one-hot numbers."""

    def __init__(self, modulus: int, width: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.modulus, self.width = modulus, width
        # skip_init: the layers' own initialisation would draw from the global random state
        self.hidden = nn.utils.skip_init(nn.Linear, 2 * modulus, width, bias=False)
        self.readout = nn.utils.skip_init(nn.Linear, width, modulus, bias=False)
        for layer in (self.hidden, self.readout):
            nn.init.normal_(layer.weight, generator=generator)

    def forward(self, x: Float[Tensor, "example input"]) -> Float[Tensor, "example output"]:
        squares = (self.hidden(x) / (2 * self.modulus) ** 0.5) ** 2
        return self.readout(squares) / self.width


@dataclass(frozen=True, eq=False)
class Pairs:
    """Every pair (a, b) modulo p, row a*p + b: as one-hot inputs, with the label a + b and its one-hot target."""

    first: Int[Tensor, "example"]
    second: Int[Tensor, "example"]
    inputs: Float[Tensor, "example input"]
    labels: Int[Tensor, "example"]
    targets: Float[Tensor, "example output"]


def all_pairs(modulus: int, device: str = "cpu") -> Pairs:
    """The p^2 rows of the addition table."""
    numbers = torch.arange(modulus, device=device)
    first, second = torch.cartesian_prod(numbers, numbers).unbind(1)
    labels = (first + second) % modulus
    one_hot = torch.eye(modulus, device=device)
    return Pairs(first, second, torch.cat([one_hot[first], one_hot[second]], 1), labels, one_hot[labels])


def split_mask(examples: int, share: float, generator: torch.Generator) -> Bool[Tensor, "example"]:
    """True for a random `share` of the examples: those to train on."""
    order = torch.randperm(examples, generator=generator)
    mask = torch.zeros(examples, dtype=torch.bool)
    mask[order[: int(share * examples)]] = True
    return mask


@dataclass(frozen=True, eq=False)
class Epoch:
    """The network before its update number `epoch`; the model is the live one, so read it before going on."""

    epoch: int
    model: QuadraticMLP
    loss: float
    train_accuracy: float
    test_accuracy: float


def training(task: ModularAddition) -> Iterator[Epoch]:
    """Train by full-batch AdamW on the squared error, yielding epochs 0 (initialisation) to `task.epochs`."""
    generator = torch.Generator().manual_seed(task.seed)
    model = QuadraticMLP(task.modulus, task.width, generator).to(task.device)
    pairs = all_pairs(task.modulus, task.device)
    train = split_mask(task.modulus**2, task.train_share, generator).to(task.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.learning_rate, weight_decay=task.weight_decay)
    for epoch in range(task.epochs + 1):
        outputs = model(pairs.inputs)
        loss = (outputs - pairs.targets)[train].square().mean()
        right = (outputs.argmax(1) == pairs.labels).double()
        yield Epoch(epoch, model, loss.item(), right[train].mean().item(), right[~train].mean().item())
        if epoch < task.epochs:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
