"""Gradients of blocks of examples, cut into tiles, each piece of a parameter in the form its way takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tangentlens.capture.factors import Factor, Formed, Outer, formed as form
from tangentlens.capture.measuring import Measurement
from tangentlens.capture.probe import Probe
from tangentlens.capture.reader import StructureChanged
from tangentlens.capture.sources import Piece
from tangentlens.kernels.blocks import Gradients, Part
from tangentlens.kernels.collapsed import collapsed
from tangentlens.kernels.joining import Joining
from tangentlens.kernels.separable import averaged, separated
from tangentlens.kernels.ways import Costs, Way, sliceable, widened

Span = tuple[int, int]
"""First example, last."""
Tile = tuple[int, int, dict[str, Gradients]]
"""First example, last, and the gradients of each piece."""


def cut(start: int, stop: int, size: int) -> list[Span]:
    """
    >>> cut(0, 7, 3)
    [(0, 3), (3, 6), (6, 7)]
    """
    return [(begin, min(begin + size, stop)) for begin in range(start, stop, size)]


def evenly(length: int, most: int) -> int:
    """The size of equal chunks of at most `most` where there are some not much smaller: a chunk of another size than
    those before is examined anew, which costs as much as several.

    >>> evenly(32, 7), evenly(23, 7), evenly(5, 7)
    (4, 7, 5)
    """
    fewest = -(-length // most) if length else 1
    for count in range(fewest, 2 * fewest):
        if length % count == 0:
            return max(1, length // count)
    return most


@dataclass
class Captures:
    """Captures what is asked for, and remembers which forms it chose: two tiles of one piece must have the same."""

    measurement: Measurement
    grouping: Callable[[str], str]
    costs: Costs
    may_fold: bool = True
    may_separate: bool = True
    may_slice: bool = True
    folds: dict[frozenset[str], dict[str, str]] = field(default_factory=dict)

    def tiles(self, probe: Probe, start: int, stop: int, names: Sequence[str], step: int, rows: int) -> list[Tile]:
        """Tiles of at most `rows` examples, `step` examples captured at once."""
        tiles: list[Tile] = []
        if step >= rows:
            for begin, end in cut(start, stop, step - step % rows):
                ready = {key: _by_example(g) for key, g in self._ready(probe, begin, end, names).items()}
                for at, to in cut(begin, end, rows):
                    tiles.append((at, to, {key: g.rows(at - begin, to - begin) for key, g in ready.items()}))
            return tiles
        for begin, end in cut(start, stop, rows):
            joining = Joining(end - begin)
            for at, to in cut(begin, end, evenly(end - begin, max(1, step))):
                chunk = self._ready(probe, at, to, names)
                if not joining.takes(chunk):
                    tiles.append((at - joining.filled, at, joining.gradients()))
                    joining = Joining(end - at)
                joining.add(chunk, to - at)
            tiles.append((end - joining.filled, end, joining.gradients()))
        return tiles

    def _ready(self, probe: Probe, start: int, stop: int, names: Sequence[str]) -> dict[str, Gradients]:
        pieces = self.measurement.pieces(probe.rows(start, stop), list(names))
        self._fold_biases(pieces)
        return {key: self._in_form(key, pieces.pop(key), self.costs.way(key)) for key in list(pieces)}

    def _in_form(self, key: str, piece: Piece, way: Way) -> Gradients:
        factors: list[Part] = list(piece.factors)
        if way in ("separable", "averaged", "collapsed") and self.may_separate:
            outer = piece.factors[0]
            found = self._shared(key, outer, way) if isinstance(outer, Outer) and len(piece.factors) == 1 else None
            if found is None:
                self.may_separate = False
                raise StructureChanged
            factors = [found]
        elif way == "sliced" and self.may_slice:
            if not sliceable(piece.factors):
                self.may_slice = False
                raise StructureChanged
            return Gradients(piece.name, piece.shape, [_positions_last(piece.factors[0])], sliced=True)
        elif way in ("formed", "folded", "separable", "sliced"):
            factors = [Formed(form(piece.factors, piece.shape).gradient)]
        return Gradients(piece.name, piece.shape, factors)

    def _shared(self, key: str, outer: Outer, way: Way) -> Part | None:
        """What outputs or units share, as seen in the first examples, if these share it too."""
        if way == "collapsed":
            return collapsed(outer, self.costs.groups(key))
        return separated(outer) if way == "separable" else averaged(outer)

    def _fold_biases(self, pieces: dict[str, Piece]) -> None:
        if not self.may_fold:
            return
        folds = foldable(pieces, self.costs.way, self.grouping)
        for bias, weight in folds.items():
            outer = pieces[weight].factors[0]
            assert isinstance(outer, Outer)
            pieces[weight] = replace(pieces[weight], factors=[widened(outer)])
            del pieces[bias]
        before = self.folds.setdefault(frozenset(pieces.keys() | folds.keys()), folds)
        if before != folds:  # two tiles folded differently do not multiply
            self.may_fold = False
            raise StructureChanged


def foldable(pieces: Mapping[str, Piece], way: Callable[[str], Way], grouping: Callable[[str], str]) -> dict[str, str]:
    """Biases with the weight whose operation they entered, where both add to one kernel."""
    weights = {
        piece.node: key
        for key, piece in pieces.items()
        if piece.node is not None
        if len(piece.factors) == 1 and isinstance(piece.factors[0], Outer) and piece.factors[0].a.shape[2] == 1
        if way(key) not in ("formed", "separable")
    }
    return {
        key: weights[bias.node]
        for key, bias in pieces.items()
        if bias.node in weights
        and grouping(bias.name) == grouping(pieces[weights[bias.node]].name)
        and _is_bias_of(bias, pieces[weights[bias.node]])
    }


def _by_example(gradients: Gradients) -> Gradients:
    """In the order in memory in which products of two tiles read it: each of them would copy it otherwise."""
    if gradients.sliced:
        return gradients
    factors = [replace(f, b=f.b.contiguous()) if isinstance(f, Outer) else f for f in gradients.factors]
    return replace(gradients, factors=factors)


def _positions_last(outer: Factor) -> Outer:
    """In the order in memory in which slices are formed without a copy."""
    assert isinstance(outer, Outer)
    b = outer.b.permute(0, 3, 1, 4, 2).contiguous().permute(0, 2, 4, 1, 3)
    return Outer(outer.a, b, outer.flipped)


def _is_bias_of(bias: Piece, weight: Piece) -> bool:
    """Its gradient is the sum of b over positions, as it must be if both entered one operation unscaled.

    At every example, and to the last digits of the sum: a bias scaled by 0.99999 is not folded.
    """
    gradient, outer = bias.factors[0], weight.factors[0]
    if len(bias.factors) != 1 or not isinstance(gradient, Formed) or not isinstance(outer, Outer):
        return False
    if bias.shape != outer.b.shape[4:]:
        return False
    b: Tensor = outer.b[:, :, :, 0]
    if b.shape[2] == 1:
        return torch.equal(gradient.gradient, b[:, :, 0])
    rounding, total = 32 * torch.finfo(b.dtype).eps, b.sum(2)
    apart = (gradient.gradient - total).abs()
    n, c, unit = (apart > rounding * total.abs()).nonzero(as_tuple=True)
    # only where large terms cancelled does the sum itself say too little of them
    return bool((apart[n, c, unit] <= rounding * torch.linalg.vector_norm(b[n, c, :, unit], 1, dim=1)).all())
