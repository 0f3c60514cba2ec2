"""Toy models of superposition, on a fixed set of sparse inputs (lin2025 v1, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class Superposition:
    """One setting: `hidden` units for `features` sparse features; each is zero with probability `sparsity`."""

    hidden: int = 10
    sparsity: float = 0.3
    features: int = 50
    examples: int = 500
    importance_decay: float = 0.8
    steps: int = 5000
    learning_rate: float = 1e-3
    seed: int = 0

    @property
    def name(self) -> str:
        return f"m={self.hidden}, S={self.sparsity:g}"


class TiedReconstruction(nn.Module):
    """x -> ReLU(W^T W x + b): the same W on the way in and on the way out."""

    def __init__(self, features: int, hidden: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, features))
        self.bias = nn.Parameter(torch.zeros(features))
        nn.init.xavier_normal_(self.weight, generator=generator)

    def forward(self, x: Float[Tensor, "example feature"]) -> Float[Tensor, "example feature"]:
        return torch.relu(x @ self.weight.T @ self.weight + self.bias)


def sparse_inputs(setting: Superposition, generator: torch.Generator) -> Float[Tensor, "example feature"]:
    """Uniform entries kept with probability 1 - sparsity, each row scaled to unit length."""
    shape = (setting.examples, setting.features)
    values = torch.rand(shape, generator=generator)
    kept = torch.rand(shape, generator=generator) >= setting.sparsity
    rows = values * kept
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)


def importances(setting: Superposition) -> Float[Tensor, "feature"]:
    """The weight of each feature in the loss: 0.8^i."""
    return setting.importance_decay ** torch.arange(setting.features, dtype=torch.float32)


def trained_superposition(setting: Superposition) -> tuple[TiedReconstruction, TiedReconstruction, Tensor]:
    """The network after full-batch Adam, the same network at initialisation, and the inputs."""
    generator = torch.Generator().manual_seed(setting.seed)
    model = TiedReconstruction(setting.features, setting.hidden, generator)
    initial = TiedReconstruction(setting.features, setting.hidden)
    initial.load_state_dict(model.state_dict())
    inputs = sparse_inputs(setting, generator)
    weights = importances(setting)
    optimizer = torch.optim.Adam(model.parameters(), lr=setting.learning_rate)
    for _ in range(setting.steps):
        loss = (weights * (inputs - model(inputs)).square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, initial, inputs
