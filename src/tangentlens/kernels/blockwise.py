"""Kernels computed block by block: capture what fits, multiply tile by tile, each pair of tiles once.

`passes.py` decides the order. Within a pass every tile of the kernel is written once, whatever the number of layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tangentlens.capture.factors import Factor, Formed, Outer, formed as form
from tangentlens.capture.measuring import Measurement
from tangentlens.capture.probe import Probe
from tangentlens.capture.reader import StructureChanged
from tangentlens.capture.sources import Piece
from tangentlens.errors import BadInput, NonFiniteKernel
from tangentlens.kernels.blocks import Gradients, add_full, add_mean
from tangentlens.kernels.memory import refuse_unless_it_fits
from tangentlens.kernels.passes import Pass, chosen_passes
from tangentlens.kernels.plan import sampled_costs
from tangentlens.kernels.separable import Separable, separated
from tangentlens.kernels.ways import Costs, Reduction, Way

Tile = tuple[int, int, dict[str, Gradients]]
"""First example, last, and the gradients of each piece."""

_TILE_ROWS = {"cpu": 1024, "cuda": 8192}  # kernel rows per tile: a tile stays in cache, a product fills the device


@dataclass
class Blockwise:
    """One kernel computation over one measurement; `grouping` names the kernel each parameter adds to."""

    measurement: Measurement
    rows: Probe
    columns: Probe | None
    reduction: Reduction
    grouping: Callable[[str], str]
    chunk: int | None = None
    may_fold: bool = True
    may_separate: bool = True
    finite: bool | Tensor = True
    folds: dict[frozenset[str], dict[str, str]] = field(default_factory=dict)

    @torch.no_grad()
    def kernels(self) -> dict[str, Tensor]:
        other = self.columns or self.rows
        costs = sampled_costs(self.measurement, self.rows, other, self.reduction, self.columns is None)

        def everything() -> dict[str, Tensor]:
            result = self._empty(costs.outputs)
            columns = None if self.columns is None else self.columns.length
            order = chosen_passes(costs, self.rows.length, columns, self.measurement.dtype, self.measurement.device)
            for one in order.passes:
                self._one_pass(result, one, costs)
            return result

        result = self.measurement.retried(everything)
        if not self.measurement.touched:
            raise BadInput(
                "the outputs must depend on the parameters, got outputs that none of them reaches; "
                "check outputs= and the model for detach(), argmax or no_grad, or parameters= for unused ones"
            )
        if not bool(self.finite):
            raise NonFiniteKernel(self._first_nonfinite())
        return result

    def _empty(self, outputs: int) -> dict[str, Tensor]:
        n, m = self.rows.length, (self.columns or self.rows).length
        shape = (n, outputs, m, outputs) if self.reduction == "full" else (n, m)
        groups = list(dict.fromkeys(self.grouping(name) for name in self.measurement.wanted))
        item = torch.finfo(self.measurement.dtype).bits // 8
        entries = n * m * (outputs**2 if self.reduction == "full" else 1)
        factor = outputs if self.reduction == "full" else 1
        refuse_unless_it_fits("a kernel", n * factor, m * factor, len(groups) * entries * item, self.measurement.device)
        return {
            group: torch.zeros(shape, dtype=self.measurement.dtype, device=self.measurement.device) for group in groups
        }

    def _one_pass(self, result: dict[str, Tensor], one: Pass, costs: Costs) -> None:
        other, block = self.columns or self.rows, one.block
        for start in range(0, self.rows.length, block):
            stop = min(start + block, self.rows.length)
            left = self._captured(self.rows, start, stop, one, costs)
            first = start if self.columns is None else 0
            for begin in range(first, other.length, block):
                end = min(begin + block, other.length)
                same = self.columns is None and begin == start
                right = left if same else self._captured(other, begin, end, one, costs)
                self._multiply(result, left, right, costs.outputs)

    def _captured(self, probe: Probe, start: int, stop: int, one: Pass, costs: Costs) -> list[Tile]:
        """Tiles of examples with their gradients, each piece in the form its way takes."""
        step = self.chunk or one.chunk
        tile = self._tile(costs.outputs)
        if step > tile:  # whole tiles: a remainder would make small products of every pair
            step -= step % tile
        step = max(1, min(step, stop - start))
        tiles = []
        for begin in range(start, stop, step):
            end = min(begin + step, stop)
            pieces = self.measurement.pieces(probe.rows(begin, end), list(one.names))
            self._fold_biases(pieces, costs)
            ready = {}
            for key in list(pieces):
                piece = pieces.pop(key)
                ready[key] = Gradients(piece.name, piece.shape, self._in_form(piece, costs.way(key)))
            for at in range(begin, end, tile):
                to = min(at + tile, end)
                tiles.append((at, to, {key: g.rows(at - begin, to - begin) for key, g in ready.items()}))
        return tiles

    def _in_form(self, piece: Piece, way: Way) -> list[Factor | Separable]:
        if way == "separable" and self.may_separate:
            outer = piece.factors[0]
            shared = separated(outer) if isinstance(outer, Outer) and len(piece.factors) == 1 else None
            if shared is None:
                self.may_separate = False
                raise StructureChanged
            return [shared]
        if way in ("formed", "separable"):
            return [Formed(form(piece.factors, piece.shape).gradient)]
        return list(piece.factors)

    def _fold_biases(self, pieces: dict[str, Piece], costs: Costs) -> None:
        """A bias is a weight whose input is 1: beside its weight it costs one more column of a, alone as much again."""
        if not self.may_fold:
            return
        folds = self._foldable(pieces, costs)
        for bias, weight in folds.items():
            outer = pieces[weight].factors[0]
            assert isinstance(outer, Outer)
            widened = torch.cat([outer.a, outer.a.new_ones(*outer.a.shape[:-1], 1)], -1)
            pieces[weight] = replace(pieces[weight], factors=[Outer(widened, outer.b, outer.flipped)])
            del pieces[bias]
        before = self.folds.setdefault(frozenset(pieces.keys() | folds.keys()), folds)
        if before != folds:  # two tiles folded differently do not multiply
            self.may_fold = False
            raise StructureChanged

    def _foldable(self, pieces: dict[str, Piece], costs: Costs) -> dict[str, str]:
        """Biases with the weight whose operation they entered."""
        weights = {
            piece.node: key
            for key, piece in pieces.items()
            if piece.node is not None and costs.way(key) not in ("formed", "separable")
            if len(piece.factors) == 1 and isinstance(piece.factors[0], Outer) and piece.factors[0].a.shape[2] == 1
        }
        return {
            key: weights[bias.node]
            for key, bias in pieces.items()
            if bias.node in weights
            and self.grouping(bias.name) == self.grouping(pieces[weights[bias.node]].name)
            and _is_bias_of(bias, pieces[weights[bias.node]])
        }

    def _multiply(
        self,
        result: dict[str, Tensor],
        left: list[Tile],
        right: list[Tile],
        outputs: int,
    ) -> None:
        for start, stop, rows in left:
            for begin, end, columns in right:
                if self.columns is None and begin < start:
                    continue
                tiles = {}
                for key in rows.keys() & columns.keys():
                    group = self.grouping(rows[key].name)
                    if group not in tiles:
                        tiles[group] = self._empty_tile(stop - start, end - begin, outputs)
                    add = add_full if self.reduction == "full" else add_mean
                    add(tiles[group], rows[key], columns[key])
                for group, tile in tiles.items():
                    self._write(result[group], tile, slice(start, stop), slice(begin, end))

    def _write(self, kernel: Tensor, tile: Tensor, rows: slice, columns: slice) -> None:
        self.finite = torch.isfinite(tile).all() & self.finite  # by tile: over a whole kernel the test takes its size
        mirrored = self.columns is None and rows != columns
        if self.columns is None and rows == columns:  # exactly symmetric: eigensolvers read one triangle alone
            square = tile.flatten(2).flatten(0, 1) if tile.ndim == 4 else tile
            tile = ((square + square.T) / 2).view(tile.shape)
        if self.reduction == "full":
            kernel[rows, :, columns] += tile
            if mirrored:
                kernel[columns, :, rows] += tile.permute(2, 3, 0, 1)
        else:
            kernel[rows, columns] += tile
            if mirrored:
                kernel[columns, rows] += tile.T

    def _empty_tile(self, rows: int, columns: int, outputs: int) -> Tensor:
        shape = (rows, outputs, columns, outputs) if self.reduction == "full" else (rows, columns)
        return torch.zeros(shape, dtype=self.measurement.dtype, device=self.measurement.device)

    def _tile(self, outputs: int) -> int:
        rows = _TILE_ROWS.get(self.measurement.device.type, 1024)
        return max(1, rows // (outputs if self.reduction == "full" else 2))

    def _first_nonfinite(self) -> str:
        names = list(self.measurement.wanted)
        for probe in [self.rows] + ([self.columns] if self.columns is not None else []):
            for n in range(probe.length):
                pieces = self.measurement.pieces(probe.rows(n, n + 1), names)
                for piece in pieces.values():
                    gradient = form(piece.factors, piece.shape).gradient.flatten(2)
                    bad = ~torch.isfinite(gradient[0]).all(-1)
                    if bad.any():
                        return (
                            f"a kernel must be finite, got inf or nan first at example {n}, output "
                            f"{int(bad.nonzero()[0])}, parameter {piece.name}; check that input and the outputs there "
                            "(overflow, division by zero, log of zero), or measure with dtype=torch.float64"
                        )
        return "a kernel must be finite, got inf or nan in a product of finite gradients; use dtype=torch.float64"


def _is_bias_of(bias: Piece, weight: Piece) -> bool:
    """Its gradient is the sum of b over positions, as it must be if both entered one operation unscaled."""
    gradient, outer = bias.factors[0], weight.factors[0]
    if len(bias.factors) != 1 or not isinstance(gradient, Formed) or not isinstance(outer, Outer):
        return False
    if bias.shape != outer.b.shape[4:]:
        return False
    total = outer.b[:1, :, :, 0].sum(2)
    return torch.allclose(gradient.gradient[:1], total, rtol=1e-4, atol=1e-6 * float(total.abs().max()))
