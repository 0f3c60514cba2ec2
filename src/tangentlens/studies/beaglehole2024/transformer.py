"""Beyond the paper: a small transformer on characters, each head's query, key and value read as a layer of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tangentlens.kernels import layer_moments
from tangentlens.measures.alignment_readings import ansatz_readings, head_rows, rows_of
from tangentlens.studies.datasets import tiny_shakespeare


@dataclass(frozen=True)
class Shape:
    """Sizes of the network and of its training."""

    width: int = 64
    heads: int = 4
    blocks: int = 2
    context: int = 32
    steps: int = 600
    batch: int = 64
    rate: float = 1e-3
    probe: int = 48
    draws: int = 39


class Block(nn.Module):
    """Causal attention with packed queries, keys and values, then two maps; normalised before each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_maps = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, stream: Float[Tensor, "example position unit"]) -> Float[Tensor, "example position unit"]:
        parts = self.packed(self.before_attention(stream)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        later = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool, device=stream.device).triu(1)
        weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(later, -torch.inf).softmax(-1)
        stream = stream + self.out((weights @ value).transpose(1, 2).flatten(2))
        return stream + self.down(nn.functional.gelu(self.up(self.before_maps(stream))))


class Characters(nn.Module):
    """Next-character scores at every position."""

    def __init__(self, vocabulary: int, shape: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, shape.width)
        self.place = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape.width, shape.heads) for _ in range(shape.blocks)))
        self.norm, self.head = nn.LayerNorm(shape.width), nn.Linear(shape.width, vocabulary)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example position token"]:
        places = self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(self.token(tokens) + places)))


@dataclass(frozen=True)
class TransformerRun:
    """Readings of every part at the start and the end: part -> name -> (start, end); and the loss before and after."""

    parts: dict[str, dict[str, tuple[float, float]]]
    loss: tuple[float, float]


def transformer_run(
    seed: int, folder: Path | None, *, shape: Shape | None = None, device: str = "cpu"
) -> TransformerRun:
    """Train on Tiny Shakespeare with AdamW; outputs are the scores of the last position of each probe text.

    The start is read after one step, for a weight that has not moved has no centred value.
    """
    shape = shape or Shape()
    torch.manual_seed(seed)
    text = tiny_shakespeare(folder)
    letters = sorted(set(text))
    numbers = {letter: number for number, letter in enumerate(letters)}
    encoded = torch.tensor([numbers[letter] for letter in text[:200_000]], device=device)
    network = Characters(len(letters), shape).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=shape.rate)
    probe = _windows(encoded, shape.probe, shape.context)[:, :-1]
    initial = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    looks, losses = [], []
    for step in range(1, shape.steps + 1):
        loss = _loss(network, _windows(encoded, shape.batch, shape.context))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step in (1, shape.steps):
            looks.append(_parts(network, probe, initial, shape, step))
    parts = {part: {name: (start, looks[1][part][name]) for name, start in looks[0][part].items()} for part in looks[0]}
    return TransformerRun(parts, (losses[0], sum(losses[-20:]) / len(losses[-20:])))


def _windows(encoded: Tensor, count: int, context: int) -> Int[Tensor, "example position"]:
    starts = torch.randint(len(encoded) - context - 1, (count,))
    return torch.stack([encoded[start : start + context + 1] for start in starts.tolist()])


def _loss(network: nn.Module, windows: Int[Tensor, "example position"]) -> Tensor:
    return nn.functional.cross_entropy(network(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


def _parts(
    network: Characters, probe: Tensor, initial: dict[str, Tensor], shape: Shape, step: int
) -> dict[str, dict[str, float]]:
    """One capture, every linear map of every block; the packed one head by head."""
    names = [f"blocks.{block}.{part}" for block in range(shape.blocks) for part in ("packed", "out", "up", "down")]
    moments = layer_moments(network, probe, layers=names, outputs=lambda scores: scores[:, -1])
    parts = {}
    for name in names:
        weight, kernel = moments[name].weight, moments[name].ptk_covariance
        pieces = head_rows(len(weight), shape.heads) if name.endswith("packed") else {"": slice(None)}
        for piece, rows in pieces.items():
            chosen, own = rows_of(weight, kernel, rows)
            start, _ = rows_of(initial[f"{name}.weight"], kernel, rows)
            seed = crc32(f"{name} {piece} {step}".encode())
            readings = ansatz_readings(chosen, start, own, draws=shape.draws, seed=seed)
            parts[f"{name} {piece}".strip()] = {key: float(value) for key, value in readings.items()}
    return parts
