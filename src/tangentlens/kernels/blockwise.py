"""Kernels computed block by block: capture what fits, multiply tile by tile, each pair of tiles once.

`passes.py` decides how much is held, `captures.py` gives the gradients, `tiles.py` the order and where tiles go.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlens.capture.measuring import Measurement
from tangentlens.capture.precision import lowered, products_in
from tangentlens.capture.probe import Probe
from tangentlens.distributed import ALONE, Job
from tangentlens.errors import BadInput, NonFiniteKernel
from tangentlens.kernels.agreed import free_for_each, in_agreement, read_alike
from tangentlens.kernels.blocks import add_full, add_mean, add_upper, mirrored
from tangentlens.kernels.captures import Captures, Tile
from tangentlens.kernels.memory import free_bytes, refuse_unless_it_fits
from tangentlens.kernels.nonfinite import first_nonfinite
from tangentlens.kernels.on_disk import OnDisk
from tangentlens.kernels.passes import Pass, chosen_passes
from tangentlens.kernels.plan import sampled_costs
from tangentlens.kernels.slices import parts
from tangentlens.kernels.stripes import striped_pass
from tangentlens.kernels.tiles import Block, InMemory, Region, Round, Sink, Span, cut, divided, rounds
from tangentlens.kernels.ways import Costs, Reduction

_TILE_ROWS = {"cpu": 640, "cuda": 8192}  # kernel rows per tile: a tile stays in cache, a product fills the device
_SLICE = 1 << 21


@dataclass
class Blockwise:
    """One kernel computation over one measurement; `grouping` names the kernel each parameter adds to."""

    measurement: Measurement
    rows: Probe
    columns: Probe | None
    reduction: Reduction
    grouping: Callable[[str], str]
    chunk: int | None = None
    job: Job = ALONE
    finite: bool | Tensor = True

    @torch.no_grad()
    def kernels(self) -> dict[str, Tensor]:
        """Whole kernels by group, on every rank of the job."""
        costs = self.costs()
        shape = self.shape(costs.outputs)
        self._refuse_unless_they_fit(costs.outputs, shape)
        sink = InMemory(self.groups(), shape, self.measurement.dtype, self.measurement.device)
        share = max(stop - start for start, stop in self.job.shares(self.rows.length))
        if self.job.size == 1:
            columns = None if self.columns is None else self.columns.length
        else:  # beside its own rows a rank holds the block that is visiting it and the next one
            columns = 2 * max(stop - start for start, stop in self.job.shares((self.columns or self.rows).length))
        free = max(free_for_each(self.job, self.measurement.device) - self._kernel_bytes(shape), 0)
        order = chosen_passes(costs, share, columns, self.measurement.dtype, self.measurement.device, free)
        self._run(sink, costs, self.job.from_first(lambda: order.passes))
        for kernel in sink.kernels.values():
            self.job.sum(kernel)
        finite = torch.tensor(float(not bool(self.finite)), dtype=torch.float64)
        if self.job.sum(finite) > 0:
            raise NonFiniteKernel(self._first_nonfinite())
        return sink.kernels

    def write(self, sink: OnDisk, costs: Costs) -> None:
        """The same, region by region to where the sink keeps them; what is there already is not computed again."""
        share = max(stop - start for start, stop in self.job.shares(self.rows.length, sink.grain))
        columns = None if self.columns is None else self.columns.length
        free = free_for_each(self.job, self.measurement.device)
        one = striped_pass(
            costs, share, columns, sink.grain, self.measurement.dtype, self.measurement.device, free,
            visitors=1 if self.job.size == 1 else 3,
        )  # fmt: skip
        self._run(sink, costs, self.job.from_first(lambda: (one,)))

    def costs(self) -> Costs:
        other = self.columns or self.rows
        alike = self.columns is None
        return sampled_costs(self.measurement, self.rows, other, self.reduction, alike, self.grouping)

    def groups(self) -> list[str]:
        return list(dict.fromkeys(self.grouping(name) for name in self.measurement.wanted))

    def shape(self, outputs: int) -> tuple[int, ...]:
        return self._extent(self.rows.length, (self.columns or self.rows).length, outputs)

    def _extent(self, rows: int, columns: int, outputs: int) -> tuple[int, ...]:
        return (rows, outputs, columns, outputs) if self.reduction == "full" else (rows, columns)

    def _refuse_unless_they_fit(self, outputs: int, shape: tuple[int, ...]) -> None:
        factor = outputs if self.reduction == "full" else 1
        rows, columns = self.rows.length * factor, (self.columns or self.rows).length * factor
        holders = self.job.sharing(self.measurement.device)  # every rank holds the whole
        refuse_unless_it_fits("a kernel", rows, columns, self._kernel_bytes(shape) * holders, self.measurement.device)

    def _kernel_bytes(self, shape: tuple[int, ...]) -> int:
        return len(self.groups()) * torch.Size(shape).numel() * torch.finfo(self.measurement.dtype).bits // 8

    def _run(self, sink: Sink, costs: Costs, passes: tuple[Pass, ...]) -> None:
        captures = Captures(self.measurement, self.grouping, costs)

        def everything() -> None:
            sink.begin()
            for one in passes:
                self._one_pass(sink, one, captures)

        in_agreement(self.job, self.measurement, everything, captures)
        if not self.measurement.touched:
            raise BadInput(
                "the outputs must depend on the parameters, got outputs that none of them reaches; "
                "check outputs= and the model for detach(), argmax or no_grad, or parameters= for unused ones"
            )

    def _one_pass(self, sink: Sink, one: Pass, captures: Captures) -> None:
        grain = sink.grain or 1
        rows = self.job.shares(self.rows.length, grain)
        columns = None if self.columns is None else self.job.shares(self.columns.length, grain)
        other = self.columns or self.rows
        held: tuple[list[Span], Block] | None = None
        for turn in rounds(rows, columns, one.block, sink.grain or one.block):
            if not any(sink.pending(left, right) for left in turn.rows for right in turn.columns):
                continue
            if held is None or held[0] != turn.rows:
                held = None  # freed before the next block is captured
                held = turn.rows, self._captured(self.rows, turn.rows, sink, one, captures)
            left = held[1]
            right = left if turn.same else self._captured(other, turn.columns, sink, one, captures)
            read_alike(self.job, self.measurement, captures)
            self._one_round(sink, turn, left, right, captures.costs.outputs)

    def _captured(self, probe: Probe, spans: list[Span], sink: Sink, one: Pass, captures: Captures) -> Block:
        start, stop = spans[self.job.rank]
        step, rows = self.chunk or one.chunk, self._tile(captures.costs.outputs, sink.grain or stop - start)
        return [
            Region(*span, captures.tiles(probe, *span, one.names, step, rows))
            for span in cut(start, stop, sink.grain or max(1, stop - start))
        ]

    def _one_round(self, sink: Sink, turn: Round, left: Block, right: Block, outputs: int) -> None:
        with closing(self.job.around(right, half=turn.same)) as visits:
            for origin, visiting in visits:
                mine = left
                met_twice = turn.same and 2 * ((self.job.rank - origin) % self.job.size) == self.job.size
                if met_twice:
                    mine, visiting = divided(left, visiting, self.job.rank < origin, sink.grain is not None)
                for rows in mine:
                    for columns in visiting:
                        if turn.same and origin == self.job.rank and columns.start < rows.start:
                            continue  # the mirror image of one that is computed
                        if sink.pending((rows.start, rows.stop), (columns.start, columns.stop)):
                            self._multiply(sink, rows, columns, outputs)

    def _multiply(self, sink: Sink, rows: Region, columns: Region, outputs: int) -> None:
        asked = lowered()
        with products_in(asked.precision) if asked else nullcontext():
            for left, right in parts(rows.tiles, columns.tiles, self._slice()):
                self._add_part(sink, left, right, outputs, rows is columns)
        if sink.grain is not None and not bool(self.finite):
            raise NonFiniteKernel(self._first_nonfinite())
        sink.done((rows.start, rows.stop), (columns.start, columns.stop))

    def _add_part(self, sink: Sink, rows: list[Tile], columns: list[Tile], outputs: int, same: bool) -> None:
        add = add_full if self.reduction == "full" else add_mean
        for start, stop, left in rows:
            for begin, end, right in columns:
                diagonal = self.columns is None and begin == start
                if same and begin < start:
                    continue  # the mirror image of one that is computed
                tiles: dict[str, Tensor] = {}
                for key in left.keys() & right.keys():
                    group = self.grouping(left[key].name)
                    if group not in tiles:
                        extent = self._extent(stop - start, end - begin, outputs)
                        tiles[group] = torch.zeros(extent, dtype=self.measurement.dtype, device=self.measurement.device)
                    if diagonal:
                        add_upper(add, tiles[group], left[key])
                    else:
                        add(tiles[group], left[key], right[key])
                for group, tile in tiles.items():
                    # by tile: over a whole kernel the test takes its size
                    self.finite = torch.isfinite(tile).all() & self.finite
                    both = self.columns is None and not diagonal
                    whole = mirrored(tile) if diagonal else tile
                    sink.add(group, slice(start, stop), slice(begin, end), whole, both)

    def _slice(self) -> int:
        """Entries of a gradient that are formed at once, where it is too large to be held."""
        on_card = self.measurement.device.type == "cuda"
        return free_bytes(self.measurement.device) // 64 if on_card else _SLICE

    def _tile(self, outputs: int, examples: int) -> int:
        """Examples of a tile, such that a block is cut into equal ones: no sliver is left at its end."""
        rows = _TILE_ROWS.get(self.measurement.device.type, 1024)
        most = max(1, rows // (outputs if self.reduction == "full" else 2))
        return max(1, -(-examples // max(1, round(examples / most))))

    def _first_nonfinite(self) -> str:
        return first_nonfinite(self.measurement, [self.rows] + ([] if self.columns is None else [self.columns]))
