"""Gradients too large to hold, formed a few rows of the weight at a time: for products, then forgotten.

A kernel is a sum over entries of a weight, so it can be summed over slices of one. Held between slices are the
factors (a, b), which are smaller; each slice is formed once for all examples at hand.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.capture.factors import Formed, Outer
from tangentlens.kernels.blocks import Gradients
from tangentlens.kernels.captures import Tile

_NARROWEST = 4096  # entries of a gradient in a slice: with fewer, writing the kernel costs more than the product


def parts(left: list[Tile], right: list[Tile], entries: int) -> Iterator[tuple[list[Tile], list[Tile]]]:
    """What is ready for products, then each sliced piece slice by slice, about `entries` numbers of it at a time."""
    sliced = {key for _, _, pieces in left for key, g in pieces.items() if g.sliced}
    ready = _without(left, sliced)
    yield ready, ready if right is left else _without(right, sliced)
    rows = sum(stop - start for start, stop, _ in left)
    for key in sorted(sliced):
        outer = next(_outer(pieces[key]) for _, _, pieces in left if key in pieces)
        units, width = outer.b.shape[4], outer.a.shape[3]
        step = max(1, max(entries // (rows * outer.b.shape[1]), _NARROWEST) // width)
        here, there = _rooms(left, key, step), _rooms(right, key, step)
        for first in range(0, units, step):
            formed = _formed(left, key, first, first + step, here)
            yield formed, formed if right is left else _formed(right, key, first, first + step, there)


def _without(tiles: list[Tile], keys: set[str]) -> list[Tile]:
    return [(start, stop, {k: g for k, g in pieces.items() if k not in keys}) for start, stop, pieces in tiles]


def _rooms(tiles: list[Tile], key: str, units: int) -> list[Tensor]:
    """Memory for one slice of each tile, taken once: the system would hand out fresh pages for every slice."""
    outers = [_outer(pieces[key]) for _, _, pieces in tiles if key in pieces]
    return [o.b.new_empty(o.b.shape[:2].numel() * min(units, o.b.shape[4]) * o.a.shape[3]) for o in outers]


def _formed(tiles: list[Tile], key: str, first: int, last: int, rooms: list[Tensor]) -> list[Tile]:
    present = [tile for tile in tiles if key in tile[2]]
    return [
        (start, stop, {key: _slice(pieces[key], first, last, room)})
        for (start, stop, pieces), room in zip(present, rooms, strict=True)
    ]


def _slice(gradients: Gradients, first: int, last: int, room: Tensor) -> Gradients:
    outer = _outer(gradients)
    b: Float[Tensor, "example output unit position"] = outer.b[:, :, :, 0, first:last].transpose(2, 3)
    (n, c, units, _), p = b.shape, outer.a.shape[3]
    gradient = room[: n * c * units * p].view(n, c * units, p)
    torch.bmm(b.flatten(1, 2), outer.a[:, :, 0], out=gradient)
    gradient = gradient.unflatten(1, (c, units))
    return Gradients(gradients.name, gradient.shape[2:], [Formed(gradient)])


def _outer(gradients: Gradients) -> Outer:
    factor = gradients.factors[0]
    assert isinstance(factor, Outer)  # ways.sliceable() was asked before the piece was marked
    return factor
