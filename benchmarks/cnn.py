"""A convolutional network on images, full and averaged kernel."""

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
        return models.cnn(options.channels, options.outputs, options.image), torch.randn(
            options.examples, *options.image
        )

    name = f"CNN {'-'.join(map(str, options.channels))} on {'x'.join(map(str, options.image))}, N={options.examples}"
    return [
        Comparison(f"{name}, full kernel", build, "full"),
        Comparison(f"{name}, averaged kernel", build, "averaged"),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = shared(__doc__, examples=64, block=32)
    parser.add_argument("--image", type=int, nargs=3, default=[3, 32, 32])
    parser.add_argument("--channels", type=int, nargs="+", default=[64, 128, 128])
    parser.add_argument("--outputs", type=int, default=10)
    run(parser, comparisons, arguments)


if __name__ == "__main__":
    main()
