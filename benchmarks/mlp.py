"""A fully connected ReLU network, full kernel."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import torch
from torch import nn

from benchmarks import models
from benchmarks.compare import Comparison
from benchmarks.options import run, shared


def comparisons(options: Namespace) -> list[Comparison]:
    def build() -> tuple[nn.Module, torch.Tensor]:
        return models.mlp(options.widths), torch.randn(options.examples, options.widths[0])

    sizes = "-".join(map(str, options.widths))
    return [Comparison(f"MLP {sizes}, N={options.examples}, full kernel", build, "full")]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = shared(__doc__, examples=128, block=32)
    parser.add_argument("--widths", type=int, nargs="+", default=[784, 1024, 1024, 10])
    run(parser, comparisons, arguments)


if __name__ == "__main__":
    main()
