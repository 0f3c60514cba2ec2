"""The plan: per parameter the rung and the way, in total flops and bytes, before any of it is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import torch
from torch import nn

from tangentlens.capture.measuring import Globs, Measurement, measuring
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs, Probe
from tangentlens.capture.sources import Piece
from tangentlens.errors import BadInput, RefusedForMemory
from tangentlens.kernels.captures import foldable
from tangentlens.kernels.memory import free_bytes, in_units, refuse_unless_it_fits
from tangentlens.kernels.passes import checked_chunk, chosen_passes
from tangentlens.kernels.routes import Route, route_to
from tangentlens.kernels.stripes import kept_bytes, region_rows, striped_bytes, striped_pass
from tangentlens.kernels.ways import Costs, Reduction, costs_of, with_folds

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
    """What a kernel would cost, with `chunk` examples captured at once, and whether that fits the free memory.

    With `route`, of its largest modes instead: `kernel_bytes` is then what that route holds in place of the kernel.
    `disk_bytes` is the memory that `out=` would work in, or None where not even that fits.
    """

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
    route: Route | None = None
    disk_bytes: int | None = None

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
        if self.route is not None:
            lines.append(str(self.route))
        held = "kernel" if self.route is None or self.route.way == "dense" else "matrices"
        lines.append(
            f"total {self.flops:.2e} flops; {held} {in_units(self.kernel_bytes)} + work {in_units(self.working_bytes)} "
            f"of {in_units(self.free_bytes)} free: {'fits' if self.fits else f'does not fit{self._on_disk()}'}; "
            f"{self.passes} passes, {self.chunk} examples at once"
        )
        return "\n".join(lines)

    __repr__ = __str__

    def _on_disk(self) -> str:
        if self.disk_bytes is None or self.route is not None:
            return ""
        return f", but does on disk (out=) in {in_units(self.disk_bytes)}"


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
    modes: int | None = None,
) -> Plan:
    """What the kernel would cost, seen from a few examples: rung and way per parameter, flops, bytes, whether it fits.

    `reduction` is "full" for `entk_full` and "mean" for `entk`, whose ways and costs differ. With `modes`, the route
    `top_spectrum` takes to that many of the full kernel, in float64 unless told otherwise, and the memory it needs; the
    flops by parameter stay those of the kernel.
    """
    checked_chunk(chunk)
    if reduction not in get_args(Reduction):
        raise BadInput(f"reduction= must be 'full' (entk_full) or 'mean' (entk), got {reduction!r}; choose one")
    if modes is not None:
        if reduction != "full" or others is not None:
            raise ValueError("modes= is for the full kernel of one set of inputs; leave out others= and reduction=")
        dtype = dtype or torch.float64
    with measuring(model, inputs, outputs, parameters, dtype) as measurement:
        rows = measurement.prepared(inputs)
        columns = rows if others is None else measurement.prepared(others)
        costs = sampled_costs(measurement, rows, columns, reduction, others is None)
        size = sum(parameter.numel() for parameter in measurement.wanted.values())
        route = None if modes is None else route_to(modes, rows.length * costs.outputs, size)
        return _made(measurement, costs, rows, None if others is None else columns, reduction, chunk, route)


def sampled_costs(
    measurement: Measurement,
    rows: Probe,
    columns: Probe,
    reduction: Reduction,
    symmetric: bool,
    grouping: Callable[[str], str] = lambda _: "",
) -> Costs:
    """Capture a few examples to see every form, and choose each one's way; `grouping` names the kernel of each
    parameter, the same for all without it."""
    sample = rows.rows(0, min(_SAMPLE, rows.length))
    outputs = measurement.output_count(sample)
    item = torch.finfo(measurement.dtype).bits // 8
    # a linear head's own output gradient is outputs x outputs for every example: look before capturing it
    refuse_unless_it_fits(
        "the gradients of a few examples", sample.length * outputs, outputs, sample.length * outputs**2 * item,
        measurement.device,
    )  # fmt: skip
    pieces = measurement.retried(lambda: measurement.pieces(sample, list(measurement.wanted)))
    how = rows.length, columns.length, reduction, symmetric
    costs = costs_of(pieces, list(measurement.wanted), outputs, *how)
    return with_folds(costs, foldable(pieces, costs.way, grouping), *how)


def _made(
    measurement: Measurement, costs: Costs, rows: Probe, columns: Probe | None, reduction: Reduction,
    chunk: int | None, route: Route | None,
) -> Plan:  # fmt: skip
    item = torch.finfo(measurement.dtype).bits // 8
    others = rows.length if columns is None else columns.length
    entries = rows.length * others * (costs.outputs**2 if reduction == "full" else 1)
    if route is not None:
        entries = route.numbers
    against = None if columns is None else others
    free = free_bytes(measurement.device)
    beside = free - entries * item if entries * item < free else free
    order = chosen_passes(costs, rows.length, against, measurement.dtype, measurement.device, beside)
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
    return Plan(
        tuple(table), rows.length, others, costs.outputs, measurement.reader.described_outputs, reduction,
        measurement.dtype, measurement.device, chunk or min(one.chunk for one in order.passes), len(order.passes),
        entries * item, order.budget, free, route,
        _disk_bytes(costs, rows.length, against, reduction, measurement.dtype, measurement.device, free),
    )  # fmt: skip


def _disk_bytes(
    costs: Costs, rows: int, columns: int | None, reduction: Reduction, dtype: torch.dtype, device: torch.device,
    free: int,
) -> int | None:  # fmt: skip
    width = costs.outputs if reduction == "full" else 1
    region = region_rows(rows, width, 1, 1, kept_bytes(costs, dtype), free)
    try:
        one = striped_pass(costs, rows, columns, region, dtype, device, free)
    except RefusedForMemory:
        return None
    needed = striped_bytes(costs, one, region, width, dtype)
    return needed if needed <= free else None


def _positions(piece: Piece) -> int:
    return max(f.b.shape[2] if hasattr(f, "b") else 1 for f in piece.factors)
