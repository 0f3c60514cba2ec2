"""The way the plan calls cheaper is the cheaper one: by counted operations, and on the clock where it is clear."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.flops import counted_flops
from tangentlens.capture.measuring import measuring
from tangentlens.capture.sources import Piece
from tangentlens.kernels.blocks import Gradients, add_full, add_mean
from tangentlens.kernels.captures import Captures
from tangentlens.kernels.plan import sampled_costs
from tangentlens.kernels.ways import Reduction, Way, priced
from tests.zoo.entry import Written

CLEAR = 4.0
"""Predicted ratios above it are looked for on the clock, where any ratio above 1 will do: noise is no factor of 4."""


def sequence(length: int, into: int, out: int, outputs: int) -> tuple[nn.Module, Tensor]:
    """Positions that a nonlinearity mixes afterwards, so that each output has a signal of its own."""

    def forward(m: Written, x: Tensor) -> Tensor:
        return m.last(torch.tanh(m.mixed(m.first(x).mT)).mean(2))

    parts = {"first": nn.Linear(into, out), "mixed": nn.Linear(length, length), "last": nn.Linear(out, outputs)}
    model = Written(forward, **parts)
    model.last = nn.Sequential(nn.Linear(out, out), nn.Tanh(), nn.Linear(out, outputs))
    return model, torch.randn(24, length, into)


# model, the piece, reduction, the way that must be the cheapest
CASES: dict[str, tuple[Callable[[], tuple[nn.Module, Tensor]], str, Reduction, Way]] = {
    "dense layer": (lambda: (models.mlp([256, 256, 5]), torch.randn(64, 256)), "0.weight", "full", "factored"),
    "few wide positions": (lambda: sequence(4, 256, 256, 4), "first.weight", "full", "contracted"),
    "many narrow positions": (lambda: sequence(256, 8, 8, 2), "first.weight", "full", "formed"),
    "few positions, averaged": (lambda: sequence(4, 256, 256, 4), "first.weight", "mean", "pairs"),
    "keys and values of a last token": (
        lambda: (models.Transformer(1, 64, 2, 16, 8, 4), torch.randint(8, (24, 16))),
        "blocks.0.packed.weight", "full", "collapsed",
    ),
    "below a mean and a head": (
        lambda: (models.cnn([16, 32], 8, (3, 8, 8)), torch.randn(32, 3, 8, 8)), "3.weight", "full", "separable"
    ),
}  # fmt: skip


def made(captures: Captures, key: str, piece: Piece, way: Way) -> Gradients:
    return captures._in_form(key, piece, "formed" if way == "sliced" else way)  # slices take the same products


def seconds(call: Callable[[], object]) -> float:
    found = []
    for _ in range(5):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


@pytest.mark.parametrize("case", CASES)
def test_the_way_called_cheaper_by_a_clear_factor_is_cheaper(case: str) -> None:
    build, key, reduction, best = CASES[case]
    model, inputs = build()
    n = len(inputs)
    with torch.no_grad(), measuring(model, inputs) as measurement:
        probe = measurement.prepared(inputs)
        costs = sampled_costs(measurement, probe, probe, reduction, False)
        piece = measurement.pieces(probe, list(measurement.wanted))[key]
        captures = Captures(measurement, str, costs)
        assert costs.way(key) == best
        add, extent = (add_full, (n, c, n, c)) if (c := costs.outputs) and reduction == "full" else (add_mean, (n, n))
        ways = sorted(priced(piece, n, n, reduction, False), key=lambda cost: cost.effort)
        tile, numbers, flops, clock = torch.zeros(extent), [], [], []
        for cost in ways:

            def work(way: Way = cost.way) -> None:
                gradients = made(captures, key, piece, way)
                add(tile.zero_(), gradients, gradients)

            with counted_flops() as counter:
                work()
            numbers.append(tile.clone())
            flops.append(counter.get_total_flops())
            clock.append(seconds(work))
    assert len(ways) > 1 and ways[-1].effort > CLEAR * ways[0].effort
    for place in range(1, len(ways)):
        torch.testing.assert_close(numbers[place], numbers[0], rtol=1e-3, atol=1e-3 * float(numbers[0].abs().max()))
        if ways[place].effort > CLEAR * ways[0].effort:
            assert flops[place] > flops[0], ways
            assert clock[place] > clock[0], (ways, clock)
