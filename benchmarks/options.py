"""Flags that all workloads share; each adds its own sizes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from benchmarks.compare import Comparison, compare
from benchmarks.table import table


def shared(description: str | None, examples: int, block: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--examples", type=int, default=examples)
    parser.add_argument("--block", type=int, default=block, help="examples per block of the recipe by blocks")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each method, turn by turn")
    parser.add_argument("--seconds", type=float, default=20.0, help="a method is not run again beyond this time")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--reference", type=int, default=4, help="examples of the float64 brute-force reference")
    parser.add_argument("--memory", type=int, default=0, help="bytes a method may use (0: what is free)")
    return parser


def run(
    parser: argparse.ArgumentParser,
    comparisons: Callable[[argparse.Namespace], list[Comparison]],
    arguments: Sequence[str] | None = None,
) -> None:
    options = parser.parse_args(arguments)
    for comparison in comparisons(options):
        print(table(compare(comparison, options)), flush=True)
        print()
