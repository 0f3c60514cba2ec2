"""A one-layer Transformer on modular addition, a scaled-down Nanda et al. (arXiv 2301.05217) as in lin2025 v3 and v4.

Which frequencies a run settles on depends on its seed, and with it on the order in which random numbers are drawn. So
that "seed 2" means what it means in the paper, weights are drawn in its order and shapes, and batches as a shuffling
torch DataLoader without a generator of its own would draw them, evaluations included.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class ModularTransformer:
    """The task and its training. Pairs are shuffled with `split_seed`, weights and batches drawn with `seed`."""

    modulus: int = 29
    width: int = 64
    heads: int = 4
    hidden: int = 256
    train_share: float = 0.5
    epochs: int = 4000
    batch: int = 64
    learning_rate: float = 3e-4
    weight_decay: float = 1.0
    seed: int = 2
    split_seed: int = 0


class OneLayerTransformer(nn.Module):
    """Tokens (a, b, =) -> logits at =: attention and a ReLU layer around a residual stream, no norms, no biases."""

    def __init__(self, task: ModularTransformer, generator: torch.Generator | None = None) -> None:
        super().__init__()
        vocabulary, width = task.modulus + 1, task.width
        self.heads = task.heads

        def drawn(rows: int, columns: int, fan: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns, generator=generator) / fan**0.5)

        self.embedding = drawn(vocabulary, width, width)
        self.position = drawn(3, width, width)
        self.query = drawn(width, width, width)
        self.key = drawn(width, width, width)
        self.value = drawn(width, width, width)
        self.attention_out = drawn(width, width, width)
        self.mlp_in = drawn(width, task.hidden, task.hidden)
        self.mlp_out = drawn(task.hidden, width, width)
        self.unembedding = drawn(width, vocabulary, vocabulary)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example output"]:
        return self.final_hidden(tokens) @ self.unembedding

    def final_hidden(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example unit"]:
        """What the unembedding reads at the last position."""
        stream = functional.embedding(tokens, self.embedding) + self.position
        stream = stream + self.attended(stream)
        last = stream[:, -1]
        return last + torch.relu(last @ self.mlp_in) @ self.mlp_out

    def attended(self, stream: Float[Tensor, "example position unit"]) -> Float[Tensor, "example position unit"]:
        examples, positions, width = stream.shape
        split = (examples, positions, self.heads, width // self.heads)
        query, key, value = ((stream @ w.T).view(split).transpose(1, 2) for w in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5
        hidden = torch.ones(positions, positions, dtype=torch.bool, device=stream.device).triu(1)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(examples, positions, width) @ self.attention_out.T


def sequences(modulus: int) -> Int[Tensor, "example position"]:
    """All p^2 inputs (a, b, =), row a*p + b; the token '=' is p."""
    numbers = torch.arange(modulus)
    pairs = torch.cartesian_prod(numbers, numbers)
    return torch.cat([pairs, torch.full((len(pairs), 1), modulus)], 1)


def shuffled_rows(task: ModularTransformer) -> tuple[Int[Tensor, "train"], Int[Tensor, "test"]]:
    """The rows to train on, and the others, in the order of Python's `random.shuffle` of all pairs."""
    order = list(range(task.modulus**2))
    random.Random(task.split_seed).shuffle(order)
    count = int(task.train_share * len(order))
    return torch.tensor(order[:count]), torch.tensor(order[count:])


@dataclass(frozen=True, eq=False)
class TransformerEpoch:
    """The network after `epoch` passes over its data; the model is the live one, so read it before going on."""

    epoch: int
    model: OneLayerTransformer
    train_accuracy: float
    test_accuracy: float


def training(task: ModularTransformer, every: int = 20) -> Iterator[TransformerEpoch]:
    """Train with AdamW on cross-entropy over the first p logits, yielding epoch 0, then every `every` epochs, and the
    end."""
    generator = torch.Generator().manual_seed(task.seed)
    model = OneLayerTransformer(task, generator)
    tokens, (train, test) = sequences(task.modulus), shuffled_rows(task)
    labels = tokens[:, :2].sum(1) % task.modulus
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.learning_rate, weight_decay=task.weight_decay)

    def right(rows: Int[Tensor, "example"]) -> float:
        with torch.no_grad():
            return (model(tokens[rows])[:, : task.modulus].argmax(1) == labels[rows]).double().mean().item()

    yield TransformerEpoch(0, model, right(train), right(test))
    for epoch in range(task.epochs):
        for batch in train[_loader_order(len(train), generator)].split(task.batch):
            logits = model(tokens[batch])[:, : task.modulus]
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(logits, labels[batch]).backward()
            optimizer.step()
        if epoch % 20 == 0:  # the paper evaluates here, on the test set and then on the shuffled training set
            _drawn_seed(generator)
            _loader_order(len(train), generator)
        if (epoch + 1) % every == 0 or epoch + 1 == task.epochs:
            yield TransformerEpoch(epoch + 1, model, right(train), right(test))


def _loader_order(count: int, generator: torch.Generator) -> Int[Tensor, "example"]:
    """One pass of a shuffling DataLoader: it draws a seed for its workers, then one for its sampler."""
    _drawn_seed(generator)
    return torch.randperm(count, generator=torch.Generator().manual_seed(_drawn_seed(generator)))


def _drawn_seed(generator: torch.Generator) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))
