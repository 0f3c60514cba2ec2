"""A causal transformer read at its last token, full kernel."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from benchmarks.compare import Comparison
from benchmarks.options import run, shared


class Block(nn.Module):
    """Pre-norm attention and MLP, written out: the recipe's vmap does not follow fused attention everywhere."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.merged = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            self.packed(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        x = x + self.merged(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_mlp(x))


class Transformer(nn.Module):
    def __init__(self, options: Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(options.vocabulary, options.width)
        self.positions = nn.Embedding(options.length, options.width)
        self.blocks = nn.Sequential(*(Block(options.width, options.heads) for _ in range(options.layers)))
        self.norm, self.head = nn.LayerNorm(options.width), nn.Linear(options.width, options.outputs, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)[:, -1]))


def comparisons(options: Namespace) -> list[Comparison]:
    def build() -> tuple[nn.Module, Tensor]:
        return Transformer(options), torch.randint(options.vocabulary, (options.examples, options.length))

    name = f"transformer, {options.layers} layers of {options.width}, T={options.length}, {options.outputs} outputs"
    return [Comparison(f"{name} of the last token, N={options.examples}, full kernel", build, "full")]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = shared(__doc__, examples=64, block=16)
    for flag, size in {"layers": 2, "width": 128, "heads": 4, "length": 64, "vocabulary": 32, "outputs": 32}.items():
        parser.add_argument(f"--{flag}", type=int, default=size)
    run(parser, comparisons, arguments)


if __name__ == "__main__":
    main()
