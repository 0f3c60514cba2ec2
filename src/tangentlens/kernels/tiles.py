"""Which tiles of a kernel are computed when, by whom, and where they go.

Rows are cut into blocks whose gradients are held; against each, blocks of columns are taken one after another. Each
pair is visited once: of a symmetric kernel only those on and above the diagonal, the others are their mirror images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tangentlens.kernels.captures import Span, Tile, cut


@dataclass(frozen=True)
class Region:
    """Neighbouring examples with their gradients: what a sink takes at once."""

    start: int
    stop: int
    tiles: list[Tile]


Block = list[Region]


@runtime_checkable
class Sink(Protocol):
    """Where a kernel goes, region by region."""

    @property
    def grain(self) -> int | None:
        """Regions begin at multiples of it; None where any region will do."""

    def begin(self) -> None:
        """Before the first region, and again when the work starts anew."""

    def pending(self, rows: Span, columns: Span) -> bool:
        """Whether anything here is still to be computed."""

    def add(self, group: str, rows: slice, columns: slice, tile: Tensor, mirror: bool) -> None:
        """A tile of the region that is being computed; `mirror` says that its transpose belongs below the diagonal."""

    def done(self, rows: Span, columns: Span) -> None:
        """Nothing more will be added to this region."""


@dataclass(frozen=True)
class Round:
    """One block of rows and one of columns for each process; `same` when they are the same examples."""

    rows: list[Span]
    columns: list[Span]
    same: bool


def rounds(rows: list[Span], columns: list[Span] | None, block: int, step: int) -> Iterator[Round]:
    """All pairs of blocks, for processes that own these rows and columns (None: the rows themselves)."""
    blocks = [cut(*span, block) for span in rows]
    for number in range(max(map(len, blocks))):
        left = [_at(mine, number, span) for mine, span in zip(blocks, rows)]
        if columns is None:
            yield Round(left, left, True)
        rest = columns if columns is not None else [(mine[1], span[1]) for mine, span in zip(left, rows)]
        steps = [cut(*span, step) for span in rest]
        for other in range(max(map(len, steps))):
            yield Round(left, [_at(mine, other, span) for mine, span in zip(steps, rest)], False)


def _at(spans: Sequence[Span], number: int, whole: Span) -> Span:
    """An empty span at the end where a process has fewer blocks than another."""
    return spans[number] if number < len(spans) else (whole[1], whole[1])


def divided(left: Block, right: Block, lower: bool, whole_regions: bool) -> tuple[Block, Block]:
    """Half of a pair of blocks that two processes both hold: the lower one takes the first half of its own rows, the
    other one what is left of them."""
    if lower:
        return _halves(left, whole_regions)[0], right
    return left, _halves(right, whole_regions)[1]


def _halves(block: Block, whole_regions: bool) -> tuple[Block, Block]:
    if whole_regions or len(block) != 1:
        middle = len(block) // 2
        return block[:middle], block[middle:]
    region = block[0]
    middle = (region.start + region.stop) // 2
    return _part(region, region.start, middle), _part(region, middle, region.stop)


def _part(region: Region, start: int, stop: int) -> Block:
    """These examples of a region; a tile that lies across the cut is cut."""
    tiles = []
    for begin, end, gradients in region.tiles:
        first, last = max(begin, start), min(end, stop)
        if first < last:
            tiles.append((first, last, {key: g.rows(first - begin, last - begin) for key, g in gradients.items()}))
    return [Region(start, stop, tiles)] if tiles else []


class InMemory:
    """Whole kernels, one a group; passes over different parameters add up."""

    grain: int | None = None

    def __init__(self, groups: list[str], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.kernels: dict[str, Tensor] = {}
        self._new = lambda: {group: torch.zeros(shape, dtype=dtype, device=device) for group in groups}

    def begin(self) -> None:
        self.kernels.clear()  # before the new ones: both would be held otherwise
        self.kernels.update(self._new())

    def pending(self, rows: Span, columns: Span) -> bool:
        return True

    def add(self, group: str, rows: slice, columns: slice, tile: Tensor, mirror: bool) -> None:
        kernel = self.kernels[group]
        if tile.ndim == 4:
            kernel[rows, :, columns] += tile
            if mirror:
                kernel[columns, :, rows] += tile.permute(2, 3, 0, 1)
        else:
            kernel[rows, columns] += tile
            if mirror:
                kernel[columns, rows] += tile.T

    def done(self, rows: Span, columns: Span) -> None:
        pass
