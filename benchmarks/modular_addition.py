"""The quadratic network of modular addition, full and averaged kernel."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import models
from benchmarks.compare import Comparison
from benchmarks.options import run, shared


def comparisons(options: Namespace) -> list[Comparison]:
    def build() -> tuple[nn.Module, Tensor]:
        pairs = torch.cartesian_prod(torch.arange(options.p), torch.arange(options.p))
        chosen = pairs[torch.randperm(len(pairs))[: options.examples]]
        return models.Quadratic(options.p, options.width), functional.one_hot(chosen, options.p).flatten(1).float()

    count = min(options.examples, options.p**2)
    name = f"modular addition, p={options.p}, width {options.width}, N={count}"
    return [
        Comparison(f"{name}, full kernel", build, "full"),
        Comparison(f"{name}, averaged kernel", build, "averaged"),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = shared(__doc__, examples=256, block=128)
    parser.add_argument("--p", type=int, default=29)
    parser.add_argument("--width", type=int, default=512)
    run(parser, comparisons, arguments)


if __name__ == "__main__":
    main()
