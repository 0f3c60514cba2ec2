"""How the time of a full kernel grows with examples, outputs, width and length: fitted exponents beside counted ones.

    python -m benchmarks growth

Over a decade of each size the exponent is the slope of log time against log size. `counted` is the same slope of the
matrix operations counted over the same sizes, `theory` what the formula of the dominant way says for large sizes. The
verdict on each is within 0.15 of theory, or the reason why not.
Ratios only: a slope does not care how fast the machine is, as long as it is as fast throughout.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.versions import described

WITHIN = 0.15
Made = Callable[[int], Any]


@dataclass(frozen=True)
class Axis:
    """One size that grows; `made` builds the model and inputs at it, and `theory` is the exponent it tends to."""

    name: str
    sizes: tuple[int, ...]
    made: Made
    theory: float
    why: str


def axes(toy: bool = False) -> list[Axis]:
    """Each size where its own term is the largest: many rows for pairs, few examples for what one capture takes."""
    import torch

    from benchmarks import models

    few, many = (4, 16) if toy else (8, 512)

    def mlp(examples: int = many, width: int = 256, outputs: int = 10) -> Any:
        return models.mlp([64, width, width, outputs]), torch.randn(examples, 64)

    def transformer(length: int) -> Any:
        width = 32 if toy else 256
        model = models.Transformer(layers=2, width=width, heads=4, length=length, vocabulary=32, outputs=4)
        return model, torch.randint(32, (few, length))

    def wide(width: int) -> Any:
        return mlp(examples=few, width=width, outputs=2)

    axes = [
        Axis("examples N, MLP", (480, 960, 1920, 3360, 4800), lambda n: mlp(examples=n), 2.0, "pairs of examples"),
        Axis("outputs C, MLP", (8, 16, 32, 56, 80), lambda c: mlp(outputs=c), 2.0, "pairs of outputs"),
        Axis("width, MLP", (1024, 2048, 4096, 7168, 10240), wide, 2.0, "capture; products grow with 1"),
        Axis("length T, transformer", (48, 96, 192, 336, 480), transformer, 1.0, "capture, forming; attention with 2"),
    ]
    return [replace(axis, sizes=(8, 16, 32)) for axis in axes] if toy else axes


def slope(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Least-squares exponent of a power law, and its standard error.

    >>> [round(number, 6) for number in slope([1, 2, 4], [3, 12, 48])]
    [2.0, 0.0]
    """
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    middle, level = sum(x) / len(x), sum(y) / len(y)
    spread = sum((each - middle) ** 2 for each in x)
    found = sum((each - middle) * value for each, value in zip(x, y, strict=True)) / spread
    left = sum((value - level - found * (each - middle)) ** 2 for each, value in zip(x, y, strict=True))
    return found, math.sqrt(left / max(1, len(x) - 2) / spread)


def verdict(found: float, counted: float, axis: Axis, rates: Sequence[float]) -> str:
    """Whether the time grows as the formula of the dominant way says, or why not: by the operations counted at these
    sizes, which hold terms of lower order, or by the rate at which they are done."""
    if abs(found - axis.theory) <= WITHIN:
        return f"within {WITHIN} of theory"
    if abs(found - counted) <= WITHIN:
        return f"as counted at these sizes, where terms of lower order still show (theory {axis.theory:g}: {axis.why})"
    return (
        f"not as theory ({axis.theory:g}: {axis.why}): operations grow with {counted:.2f}, and their rate changes from "
        f"{rates[0] / 1e9:.3g} to {rates[-1] / 1e9:.3g} Gflop/s"
    )


def measured(axis: Axis, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds and counted flops at every size."""
    import torch

    from benchmarks.flops import counted_flops
    from tangentlens.kernels import entk_full

    seconds, flops = [], []
    for size in axis.sizes:
        torch.manual_seed(0)
        model, inputs = axis.made(size)
        entk_full(model, inputs[:8])
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            entk_full(model, inputs)
            times.append(time.perf_counter() - start)
        seconds.append(median(times))
        with counted_flops() as counter:
            entk_full(model, inputs)
        flops.append(float(counter.get_total_flops()))
    return seconds, flops


def main(arguments: Sequence[str] | None = None) -> int:
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks growth")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--toy", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    print(described())
    for axis in axes(asked.toy):
        seconds, flops = measured(axis, asked.repeats)
        found, error = slope(axis.sizes, seconds)
        counted, _ = slope(axis.sizes, flops)
        upper, _ = slope(axis.sizes[-3:], seconds[-3:])
        upper_counted, _ = slope(axis.sizes[-3:], flops[-3:])
        times = ", ".join(f"{size}: {value:.3g} s" for size, value in zip(axis.sizes, seconds, strict=True))
        rates = [count / value for count, value in zip(flops, seconds, strict=True)]
        print(
            f"{axis.name:<22} time {found:.2f} +- {error:.2f}, counted {counted:.2f}; upper three {upper:.2f}, counted "
            f"{upper_counted:.2f}; theory {axis.theory:g}; {verdict(found, counted, axis, rates)}   ({times})",
            flush=True,
        )
    return 0
