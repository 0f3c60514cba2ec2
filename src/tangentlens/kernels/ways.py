"""Which exact formula is cheapest for a piece of a parameter, by counted multiply-adds and bytes.

With N examples, C outputs, T positions and a (out = q) x (in = p) matrix:

    apart, T = 1     N^2 p + (N C)^2 q                                   no weight sharing: MLPs, heads
    apart, T > 1     N^2 (T^2 p + C T^2 q + C^2 T q)                     one side contracted first
    formed, sliced   N C T p q + (N C)^2 p q                             long sequences or images, small p q
    separable        N T p q + N^2 (p q + C^2 q)                         the outputs share one signal
    collapsed        N C G T p + (N C)^2 (G p + q)                       G groups of units share their positions
    mean over c      N^2 T^2 (p + C q) apart, N C T p q + N^2 C p q formed, N^2 (p q + C q) separable,
                     N^2 C (G p + q) collapsed
    averaged, T = 1  N^2 (p + q)                                         the mean over c, where outputs share one signal

Sliced is formed a few rows of the matrix at a time, where (a, b) take less memory than the gradients they make. A bias
folded into its weight is one more column of a: N^2 beside a factored weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from tangentlens.capture.factors import Factor, Formed, Lookup, Outer
from tangentlens.capture.sources import Piece
from tangentlens.kernels.blocks import same_for_all
from tangentlens.kernels.collapsed import Groups, groups_in
from tangentlens.kernels.separable import averaged, separated

Reduction = Literal["full", "mean"]
Way = Literal[
    "factored", "contracted", "pairs", "looked up", "separable", "averaged", "collapsed", "formed", "sliced", "folded"
]

# Effort is counted in multiply-adds of one large product that take as long (measured on CPU): an elementwise pass takes
# so many an entry, a product summed over T positions 1 + _SHORT / T times its own, a backward pass _BACKWARD times.
_PER_ENTRY = 24
_SHORT = 16
_BACKWARD = 3


@dataclass(frozen=True)
class Cost:
    """A way for a piece: multiply-adds of a symmetric kernel and values kept per example; `slowed` is what is to be
    added where they run below the rate of a large product. Where units collapse, their groups."""

    way: Way
    multiply_adds: float
    kept: float
    slowed: float = 0.0
    groups: Groups | None = None

    @property
    def effort(self) -> float:
        return self.multiply_adds + self.slowed


@dataclass(frozen=True)
class Costs:
    """What a kernel takes: the way of each piece, and values per example by parameter."""

    by_piece: dict[str, tuple[Piece, Cost]]
    outputs: int
    kept: dict[str, float]
    raw: dict[str, float]
    activations: float
    capture_multiply_adds: float

    @property
    def multiply_adds(self) -> float:
        return sum(cost.multiply_adds for _, cost in self.by_piece.values())

    @property
    def effort(self) -> float:
        return sum(cost.effort for _, cost in self.by_piece.values())

    @property
    def weights(self) -> int:
        """How many numbers the measured parameters are."""
        return sum(piece.shape.numel() for piece, _ in self.by_piece.values())

    @property
    def capture_effort(self) -> float:
        """Of one example."""
        return _BACKWARD * self.capture_multiply_adds

    def way(self, key: str) -> Way:
        return self.by_piece[key][1].way if key in self.by_piece else "formed"

    def groups(self, key: str) -> Groups:
        found = self.by_piece[key][1].groups
        assert found is not None  # its way is "collapsed"
        return found


def costs_of(
    pieces: dict[str, Piece], names: list[str], outputs: int, rows: int, columns: int, reduction: Reduction, one: bool
) -> Costs:
    """Costs seen from the pieces of a few examples; `one` says that rows and columns are the same examples."""
    by_piece = {key: (piece, cheapest(piece, rows, columns, reduction, one)) for key, piece in pieces.items()}
    kept, raw, activations, capture = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0), 0.0, 0.0
    for piece, cost in by_piece.values():
        kept[piece.name] += cost.kept
        for factor in piece.factors:
            examples = _examples(factor)
            raw[piece.name] += factor.values / examples
            if isinstance(factor, Outer):
                positions = factor.a.shape[1]
                activations += 2 * (factor.a.numel() + factor.b.numel() / factor.b.shape[1]) / examples
                capture += (1 + outputs) * positions * piece.shape.numel()
    return Costs(by_piece, outputs, kept, raw, float(activations), float(capture))


def with_folds(
    costs: Costs, folds: Mapping[str, str], rows: int, columns: int, reduction: Reduction, one: bool
) -> Costs:
    """The same where these biases, by their weight, are another column of it and cost only what that column does."""
    by_piece, kept = dict(costs.by_piece), dict(costs.kept)
    for key, weight in folds.items():
        (bias, alone), (piece, cost) = by_piece[key], costs.by_piece[weight]
        outer = piece.factors[0]
        assert isinstance(outer, Outer)
        size = torch.Size([piece.shape.numel() + outer.b.shape[4]])
        wider = priced(replace(piece, shape=size, factors=[widened(outer)]), rows, columns, reduction, one)
        for more in wider:
            if more.way == cost.way:
                by_piece[key] = bias, replace(
                    more, way="folded", multiply_adds=more.multiply_adds - cost.multiply_adds,
                    kept=more.kept - cost.kept, slowed=more.slowed - cost.slowed,
                )  # fmt: skip
                kept[bias.name] += by_piece[key][1].kept - alone.kept
    return replace(costs, by_piece=by_piece, kept=kept)


def widened(outer: Outer) -> Outer:
    """A bias is a weight whose input is 1: beside its weight it costs one more column of a, alone as much again."""
    return Outer(torch.cat([outer.a, outer.a.new_ones(*outer.a.shape[:-1], 1)], -1), outer.b, outer.flipped)


def cheapest(piece: Piece, rows: int, columns: int, reduction: Reduction, symmetric: bool) -> Cost:
    return min(priced(piece, rows, columns, reduction, symmetric), key=lambda cost: cost.effort)


def priced(piece: Piece, rows: int, columns: int, reduction: Reduction, symmetric: bool) -> list[Cost]:
    """Every way that is open to a piece."""
    examples = _examples(piece.factors[0])
    c = _outputs(piece.factors)
    ways = [_formed(piece, examples, c, rows, columns, reduction)]
    if all(not isinstance(f, Formed) for f in piece.factors) and all(_single_group(f) for f in piece.factors):
        ways.append(_apart(piece, examples, c, rows, columns, reduction))
    shared = _separable(piece, examples, c, rows, columns, reduction)
    if shared is not None:
        ways.append(shared)
    if (few := _collapsed(piece, c, rows, columns, reduction)) is not None:
        ways.append(few)
    if reduction == "mean" and (one := _averaged(piece, rows, columns)) is not None:
        ways.append(one)
    half = 0.5 if symmetric else 1.0
    return [replace(cost, multiply_adds=half * cost.multiply_adds, slowed=half * cost.slowed) for cost in ways]


def _formed(piece: Piece, examples: int, c: int, rows: int, columns: int, reduction: Reduction) -> Cost:
    size = piece.shape.numel()
    form = forming(piece) * (rows + columns)
    gram = rows * columns * size * (c * c if reduction == "full" else c)
    apart = sum(f.values for f in piece.factors) / examples
    if sliceable(piece.factors) and apart < c * size:
        return Cost("sliced", float(form + gram), float(apart))
    return Cost("formed", float(form + gram), float(c * size))


def _separable(piece: Piece, examples: int, c: int, rows: int, columns: int, reduction: Reduction) -> Cost | None:
    factor = piece.factors[0]
    if len(piece.factors) > 1 or not isinstance(factor, Outer) or separated(factor) is None:
        return None
    t, p, q = factor.a.shape[1], factor.a.shape[3], factor.b.shape[4]
    gram = rows * columns * (p * q + (c * c if reduction == "full" else c) * q)
    return Cost("separable", float(gram + (rows + columns) * t * p * q), float(p * q))


def _collapsed(piece: Piece, c: int, rows: int, columns: int, reduction: Reduction) -> Cost | None:
    factor = piece.factors[0]
    if len(piece.factors) > 1 or not isinstance(factor, Outer) or (groups := groups_in(factor)) is None:
        return None
    t, p, q, many = factor.a.shape[1], factor.a.shape[3], factor.b.shape[4], len(groups.sizes)
    pairs = rows * columns * (c * c if reduction == "full" else c)
    total = float(pairs * (many * p + q) + (rows + columns) * c * many * t * p)
    return Cost("collapsed", total, float(c * (many * p + q)), float(pairs * many * _PER_ENTRY), groups)


def _averaged(piece: Piece, rows: int, columns: int) -> Cost | None:
    factor = piece.factors[0]
    if len(piece.factors) > 1 or not isinstance(factor, Outer) or len(factor.b) == 1 or averaged(factor) is None:
        return None
    p, q = factor.a.shape[3], factor.b.shape[4]
    return Cost("averaged", float(rows * columns * (p + q)), float(p + q))


def _apart(piece: Piece, examples: int, c: int, rows: int, columns: int, reduction: Reduction) -> Cost:
    kept = sum(f.values for f in piece.factors) / examples
    pairs = rows * columns
    lookups = [f for f in piece.factors if isinstance(f, Lookup)]
    outers = [f for f in piece.factors if isinstance(f, Outer)]
    total, slowed, way = 0.0, 0.0, "looked up"
    for lookup in lookups:
        t, q = lookup.b.shape[2], lookup.b.shape[3]
        total += pairs * min(t * 8, piece.shape[0]) * q * (c * c if reduction == "full" else c)
    for outer in outers:
        t, p, q = outer.a.shape[1], outer.a.shape[3], outer.b.shape[4]
        if t == 1:
            way = "factored"
            signals = (0 if same_for_all(outer.b) else c * c) if reduction == "full" else c  # 0: a linear head
            total += pairs * (p + signals * q)
        elif reduction == "mean":
            way = "pairs"
            total += pairs * t * t * (p + c * q)
            slowed += pairs * t * t * _PER_ENTRY
        else:
            way = "contracted"
            signals = c * t * t * q + c * c * t * q
            total += pairs * (t * t * p + signals)
            slowed += pairs * signals * _SHORT / max(1, t)
    uses = len(piece.factors)
    return Cost(way, float(total * uses), float(kept), float(slowed * uses))  # type: ignore[arg-type]


def forming(piece: Piece) -> float:
    """Multiply-adds that make one example's gradients."""
    return sum(_forming(f) for f in piece.factors) / _examples(piece.factors[0])


def sliceable(factors: Sequence[Factor]) -> bool:
    """One matrix product or convolution, all of it in one group."""
    return len(factors) == 1 and isinstance(factors[0], Outer) and factors[0].a.shape[2] == 1


def _forming(factor: Factor) -> float:
    match factor:
        case Outer():
            return factor.b.numel() * factor.a.shape[3]
        case Lookup():
            return factor.b.numel()
        case _:
            return 0.0


def _single_group(factor: Factor) -> bool:
    return not isinstance(factor, Outer) or factor.a.shape[2] == 1


def _examples(factor: Factor) -> int:
    return len(factor.gradient) if isinstance(factor, Formed) else len(factor.b)


def _outputs(factors: list[Factor]) -> int:
    factor = factors[0]
    return (factor.gradient if isinstance(factor, Formed) else factor.b).shape[1]
