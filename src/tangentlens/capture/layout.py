"""Which example does each element of an operation's result belong to?

Operations merge, transpose and drop the example axis, and sizes alone cannot tell (time first or batch first, a
width that equals the number of examples). So it is measured: give every example its own random weight and run one
more backward pass; an element that belongs to example n has its gradient multiplied by exactly that weight. A regular
layout is found by trying the few that the shape allows against every element; data-dependent ones (routed experts,
boolean masks) are read off from backward passes over binary-coded subsets of the examples, where "does not belong" is
an exact zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor


@dataclass(frozen=True)
class Regular:
    """Axis `axis` runs over outer x example x inner."""

    axis: int
    outer: int
    inner: int

    def ids(self, shape: torch.Size, examples: int, device: torch.device) -> Int[Tensor, "..."]:
        along = (torch.arange(shape[self.axis], device=device) // self.inner) % examples
        return along.view([-1 if d == self.axis else 1 for d in range(len(shape))])


@dataclass(frozen=True)
class Ragged:
    """Example of every element, -1 where no output depends on it."""

    ids: Int[Tensor, "..."]


Layout = Regular | Ragged


def candidate_layouts(shape: torch.Size, examples: int) -> list[Regular]:
    """Layouts a shape allows, the usual ones first: leading axis, then example-major."""
    found = []
    for axis, size in enumerate(shape):
        if size % examples == 0:
            rest = size // examples
            inners = [d for d in range(rest, 0, -1) if rest % d == 0]
            found += [Regular(axis, rest // inner, inner) for inner in inners]
    return found


def regular_layout(
    plain: Inexact[Tensor, "..."],
    weighted: Inexact[Tensor, "..."],
    weights: Float[Tensor, " example"],
    axes: tuple[int, ...] = (),
    exact: bool = True,
) -> tuple[Regular | None, bool]:
    """The layout under which weighting the examples weights their elements, and whether no other does nearly.

    Each row is held against its own size: one example's gradients may dwarf those of all others. Rows so small that
    the large ones' rounding could hide them count only between layouts that all other rows allow.
    """
    found: list[tuple[float, Regular]] = []
    candidates = [c for c in candidate_layouts(plain.shape, len(weights)) if not axes or c.axis in axes]
    if plain.numel() == 0:  # rows without entries, or no rows at all: nothing belongs to anyone
        return (candidates[0] if candidates else Regular(axes[0] if axes else 0, 1, 0)), False
    scale = plain.abs().max()
    if scale == 0:
        return (candidates[0] if candidates else None), False
    tolerance = 1e-9 if exact else 1e-4
    rounding = 64 * torch.finfo(scale.dtype).eps * scale
    sizes = {axis: _largest(plain, axis) for axis in {c.axis for c in candidates}}
    for layout in candidates:
        expected = plain * weights[layout.ids(plain.shape, len(weights), plain.device)]
        error, size = _largest(expected.sub_(weighted), layout.axis), sizes[layout.axis]
        if bool((error <= tolerance * size + rounding).all()):
            found.append((float((error / size).nan_to_num(0).clamp(max=1).sum()), layout))
    return (min(found, key=lambda fit: fit[0])[1] if found else None), len(found) == 1


def _largest(values: Tensor, axis: int) -> Float[Tensor, " row"]:
    """The largest entry of every row along an axis."""
    others = [d for d in range(values.ndim) if d != axis]
    return values.abs().amax(others) if others else values.abs()


def example_weights(examples: int, like: Tensor) -> Float[Tensor, " example"]:
    """Random, well apart from each other and from 0, of both signs."""
    generator = torch.Generator().manual_seed(examples)
    weights = (1 + torch.rand(examples, generator=generator)) * (
        1 - 2 * torch.randint(2, (examples,), generator=generator)
    )
    return weights.to(like)


def binary_codes(examples: int, device: torch.device) -> Int[Tensor, "code example"]:
    """Subset k holds the examples whose number (from 1) has bit k: together they spell out every example."""
    bits = max(1, math.ceil(math.log2(examples + 1)))
    numbers = torch.arange(1, examples + 1, device=device)
    return torch.stack([(numbers >> bit) & 1 for bit in range(bits)])


def ragged_layout(masked: list[Float[Tensor, "..."]]) -> Ragged:
    """Spell out each element's example from which coded backward passes reached it."""
    number = sum((gradient != 0).long() << bit for bit, gradient in enumerate(masked))
    return Ragged(torch.as_tensor(number) - 1)
