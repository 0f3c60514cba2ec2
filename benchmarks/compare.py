"""One comparison: methods on one model, timed turn by turn, the memory of each taken in a child of its own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.flops import counted_flops, matmul_rate
from benchmarks.isolated import available_memory, isolated, peak_memory
from benchmarks.recipes import Kernel, blocks, tutorial
from tests.reference import tangent

Build = Callable[[], tuple[nn.Module, Tensor]]
Method = Callable[[nn.Module, Tensor], Tensor]


@dataclass(frozen=True)
class Comparison:
    title: str
    build: Build
    kernel: Kernel


@dataclass(frozen=True)
class Row:
    """What one method cost; `skipped` says why it was not run."""

    method: str
    seconds: tuple[float, ...] = ()
    peak: int = 0
    flops: int = 0
    error: float = float("nan")
    skipped: str = ""

    @property
    def time(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True)
class Measured:
    comparison: Comparison
    rows: tuple[Row, ...]
    matmul_rate: float


def ours(kernel: Kernel) -> Method:
    from tangentlens.kernels import entk, entk_full

    return entk_full if kernel == "full" else entk


def compare(comparison: Comparison, options: argparse.Namespace) -> Measured:
    methods: dict[str, Method] = {
        "tangentlens": ours(comparison.kernel),
        "recipe": lambda model, inputs: tutorial(model, inputs, comparison.kernel),
        "recipe by blocks": lambda model, inputs: blocks(model, inputs, comparison.kernel, options.block),
    }
    rows: dict[str, Row] = {}
    sizes = isolated(lambda: _sizes(comparison))
    for name, method in methods.items():
        needed = _needed(name, sizes, options)
        if needed > (free := options.memory or available_memory()):
            rows[name] = Row(name, skipped=f"needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free")
            continue
        peak, flops = isolated(lambda method=method: _peak_and_flops(comparison, method, options))
        rows[name] = Row(name, peak=peak, flops=flops)
    runnable = {name: methods[name] for name, row in rows.items() if not row.skipped}
    seconds, errors, rate = isolated(lambda: _side_by_side(comparison, runnable, options))
    for name in runnable:
        rows[name] = replace(rows[name], seconds=seconds[name], error=errors[name])
    return Measured(comparison, tuple(rows.values()), rate)


def _built(comparison: Comparison, threads: int) -> tuple[nn.Module, Tensor]:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    return comparison.build()


def _sizes(comparison: Comparison) -> tuple[int, int, int]:
    model, inputs = _built(comparison, 1)
    return len(inputs), model(inputs[:1]).shape[1], sum(p.numel() for p in model.parameters())


def _needed(name: str, sizes: tuple[int, int, int], options: argparse.Namespace) -> int:
    """Bytes of the Jacobian the recipe holds (both blocks of a pair) and as much again for its making."""
    count, outputs, parameters = sizes
    held = {"recipe": 2 * count, "recipe by blocks": 3 * min(options.block, count)}.get(name, 0)
    return held * outputs * parameters * 4


def _peak_and_flops(comparison: Comparison, method: Method, options: argparse.Namespace) -> tuple[int, int]:
    model, inputs = _built(comparison, options.threads)
    method(model, inputs[:2])  # libraries load and allocate once, which is nobody's peak
    with peak_memory() as peak:
        method(model, inputs)
    with counted_flops() as counter:  # apart: to count takes memory too
        method(model, inputs)
    return peak.bytes, counter.get_total_flops()


def _side_by_side(
    comparison: Comparison, methods: dict[str, Method], options: argparse.Namespace
) -> tuple[dict[str, tuple[float, ...]], dict[str, float], float]:
    """Seconds of each method, turn by turn in one process, the error of each, and the rate of a large matmul."""
    model, inputs = _built(comparison, options.threads)
    rates = [matmul_rate()]
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    few = inputs[: options.reference]
    true = _reference(model, few, comparison.kernel)
    errors = {}
    for turn in range(options.repeats):
        for name, method in methods.items():
            if turn == 0:
                method(model, inputs[:2])
            elif sum(seconds[name]) > options.seconds:
                continue
            start = time.perf_counter()
            found = method(model, inputs)
            seconds[name].append(time.perf_counter() - start)
            if turn == 0:
                part = (
                    found[: len(few), :, : len(few)] if comparison.kernel == "full" else found[: len(few), : len(few)]
                )
                errors[name] = float((part.double() - true).norm() / true.norm())
            del found
        rates.append(matmul_rate())
    return {name: tuple(times) for name, times in seconds.items()}, errors, max(rates)


def _reference(model: nn.Module, inputs: Tensor, kernel: Kernel) -> Tensor:
    exact = inputs.double() if inputs.is_floating_point() else inputs
    jacobian = tangent.jacobian(tangent.in_float64(model), exact)
    return tangent.full_kernel(jacobian) if kernel == "full" else tangent.kernel(jacobian)
