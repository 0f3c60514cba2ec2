"""The plan: per parameter the rung and the way, in total flops and bytes, before any of it is spent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from tangentlens.capture.measuring import Globs, Measurement, measuring
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs, Probe
from tangentlens.capture.sources import Piece
from tangentlens.kernels.memory import free_bytes, in_units, refuse_unless_it_fits
from tangentlens.kernels.passes import chosen_passes
from tangentlens.kernels.ways import Costs, Reduction, costs_of

_SAMPLE = 3


@dataclass(frozen=True)
class Row:
    """What happens to one parameter."""

    name: str
    shape: tuple[int, ...]
    rung: str
    way: str
    positions: int
    flops: float
    kept_bytes: float


@dataclass(frozen=True)
class Plan:
    """What a kernel would cost, with `chunk` examples captured at once, and whether that fits the free memory."""

    rows: tuple[Row, ...]
    examples: int
    others: int
    outputs: int
    outputs_from: str
    reduction: Reduction
    dtype: torch.dtype
    device: torch.device
    chunk: int
    passes: int
    kernel_bytes: int
    working_bytes: int
    free_bytes: int

    @property
    def flops(self) -> float:
        return sum(row.flops for row in self.rows)

    @property
    def bytes(self) -> int:
        return self.kernel_bytes + self.working_bytes

    @property
    def fits(self) -> bool:
        return self.bytes <= self.free_bytes

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows] + [9])
        lines = [
            f"{self.reduction} kernel of {self.examples} x {self.others} examples, {self.outputs} outputs "
            f"({self.outputs_from}), {str(self.dtype).removeprefix('torch.')} on {self.device}",
            f"{'parameter':<{width}}  {'rung':<6}  {'way':<10}  {'positions':>9}  {'flops':>9}  kept",
        ]
        for row in self.rows:
            lines.append(
                f"{row.name:<{width}}  {row.rung:<6}  {row.way:<10}  {row.positions:>9}  {row.flops:>9.2e}  "
                f"{in_units(row.kept_bytes)}"
            )
        lines.append(
            f"total {self.flops:.2e} flops; kernel {in_units(self.kernel_bytes)} + work {in_units(self.working_bytes)} "
            f"of {in_units(self.free_bytes)} free: {'fits' if self.fits else 'does not fit'}; "
            f"{self.passes} passes, {self.chunk} examples at once"
        )
        return "\n".join(lines)

    __repr__ = __str__


@torch.no_grad()
def plan(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    reduction: Reduction = "full",
) -> Plan:
    """What the kernel would cost, seen from a few examples: rung and way per parameter, flops, bytes, whether it fits.

    `reduction` is "full" for `entk_full` and "mean" for `entk`, whose ways and costs differ.
    """
    with measuring(model, inputs, outputs, parameters, dtype) as measurement:
        rows = measurement.prepared(inputs)
        columns = rows if others is None else measurement.prepared(others)
        costs = sampled_costs(measurement, rows, columns, reduction, others is None)
        return _made(measurement, costs, rows, None if others is None else columns, reduction, chunk)


def sampled_costs(
    measurement: Measurement, rows: Probe, columns: Probe, reduction: Reduction, symmetric: bool
) -> Costs:
    """Capture a few examples to see every form, and choose each one's way."""
    sample = rows.rows(0, min(_SAMPLE, rows.length))
    outputs = measurement.output_count(sample)
    item = torch.finfo(measurement.dtype).bits // 8
    # a linear head's own output gradient is outputs x outputs for every example: look before capturing it
    refuse_unless_it_fits(
        "the gradients of a few examples", sample.length * outputs, outputs, sample.length * outputs**2 * item,
        measurement.device,
    )  # fmt: skip
    pieces = measurement.retried(lambda: measurement.pieces(sample, list(measurement.wanted)))
    return costs_of(pieces, list(measurement.wanted), outputs, rows.length, columns.length, reduction, symmetric)


def _made(
    measurement: Measurement, costs: Costs, rows: Probe, columns: Probe | None, reduction: Reduction, chunk: int | None
) -> Plan:
    item = torch.finfo(measurement.dtype).bits // 8
    others = rows.length if columns is None else columns.length
    order = chosen_passes(
        costs, rows.length, None if columns is None else others, measurement.dtype, measurement.device
    )
    table = []
    for name, parameter in measurement.wanted.items():
        parts = [(piece, cost) for piece, cost in costs.by_piece.values() if piece.name == name]
        table.append(
            Row(
                name,
                tuple(parameter.shape),
                measurement.rung(name),
                "/".join(sorted({cost.way for _, cost in parts})) or "-",
                max((_positions(piece) for piece, _ in parts), default=0),
                float(2 * sum(cost.multiply_adds for _, cost in parts)),
                float(item * sum(cost.kept for _, cost in parts) * rows.length),
            )
        )
    entries = rows.length * others * (costs.outputs**2 if reduction == "full" else 1)
    return Plan(
        tuple(table), rows.length, others, costs.outputs, measurement.reader.described_outputs, reduction,
        measurement.dtype, measurement.device, chunk or min(one.chunk for one in order.passes), len(order.passes),
        entries * item, order.budget, free_bytes(measurement.device),
    )  # fmt: skip


def _positions(piece: Piece) -> int:
    return max(f.b.shape[2] if hasattr(f, "b") else 1 for f in piece.factors)
