"""A causal transformer read at its last token, full kernel."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.compare import Comparison
from benchmarks.options import run, shared


def comparisons(options: Namespace) -> list[Comparison]:
    def build() -> tuple[nn.Module, Tensor]:
        sizes = (options.layers, options.width, options.heads, options.length, options.vocabulary, options.outputs)
        return models.Transformer(*sizes), torch.randint(options.vocabulary, (options.examples, options.length))

    name = f"transformer, {options.layers} layers of {options.width}, T={options.length}, {options.outputs} outputs"
    return [Comparison(f"{name} of the last token, N={options.examples}, full kernel", build, "full")]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = shared(__doc__, examples=64, block=16)
    for flag, size in {"layers": 2, "width": 128, "heads": 4, "length": 64, "vocabulary": 32, "outputs": 32}.items():
        parser.add_argument(f"--{flag}", type=int, default=size)
    run(parser, comparisons, arguments)


if __name__ == "__main__":
    main()
