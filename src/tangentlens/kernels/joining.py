"""Gradients of neighbouring chunks of examples, put together to one tile: large products are fast, small ones are not.

A tile's memory is taken once, and chunks are copied in: nothing that is held lies between what comes and goes.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tangentlens.capture.factors import Formed, Lookup, Outer
from tangentlens.kernels.blocks import Gradients, Part
from tangentlens.kernels.collapsed import Collapsed
from tangentlens.kernels.separable import Averaged, Separable


class Joining:
    """Room for the gradients of `examples` examples, filled chunk by chunk."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self.filled = 0
        self._held: dict[str, Gradients] = {}

    def takes(self, chunk: Mapping[str, Gradients]) -> bool:
        """Whether the chunk was read in the forms of those before it, and where outputs share a signal, with their
        weights."""
        if not self.filled:
            return True
        return _forms(chunk) == _forms(self._held) and all(
            _agree(old, new)
            for key, held in self._held.items()
            for old, new in zip(held.factors, chunk[key].factors, strict=True)
        )

    def add(self, chunk: dict[str, Gradients], examples: int) -> None:
        for key in list(chunk):
            new = chunk.pop(key)
            if key not in self._held:
                self._held[key] = Gradients(new.name, new.shape, [self._room(f) for f in new.factors], new.sliced)
            held = self._held[key].factors
            held[:] = [self._with(old, part) for old, part in zip(held, new.factors, strict=True)]
        self.filled += examples

    def gradients(self) -> dict[str, Gradients]:
        if self.filled == self.examples:
            return self._held
        return {key: gradients.rows(0, self.filled) for key, gradients in self._held.items()}

    def _room(self, part: Part) -> Part:
        match part:
            case Separable():
                return Separable(_empty(part.signal, self.examples), part.weight)
            case Averaged():
                return Averaged(_empty(part.a, self.examples), _empty(part.signal, self.examples), part.weight)
            case Collapsed():
                return Collapsed(_empty(part.a, self.examples), _empty(part.b, self.examples), part.groups)
            case Outer():
                return Outer(_empty(part.a, self.examples), _empty(part.b, self.examples), part.flipped)
            case Lookup():
                return Lookup(_empty(part.ids, self.examples), _empty(part.b, self.examples))
            case _:
                return Formed(_empty(part.gradient, self.examples))

    def _with(self, held: Part, new: Part) -> Part:
        match held, new:
            case Separable(), Separable():
                sign, weight = _one_weight(held.weight, new.weight)
                return Separable(self._placed(held.signal, new.signal * sign[:, None]), weight)
            case Averaged(), Averaged():
                sign, weight = _one_weight(held.weight, new.weight)
                return Averaged(self._placed(held.a, new.a), self._placed(held.signal, new.signal * sign), weight)
            case Collapsed(), Collapsed():
                return Collapsed(self._placed(held.a, new.a), self._placed(held.b, new.b), held.groups)
            case Outer(), Outer():
                return Outer(self._placed(held.a, new.a, 1), self._placed(held.b, new.b, 2), held.flipped)
            case Lookup(), Lookup():
                return Lookup(self._placed(held.ids, new.ids, 1, -1), self._placed(held.b, new.b, 2))
            case Formed(), Formed():
                return Formed(self._placed(held.gradient, new.gradient))
        raise TypeError(f"{type(new).__name__} cannot join {type(held).__name__}")  # takes() was asked before

    def _placed(self, room: Tensor, new: Tensor, positions: int | None = None, fill: float = 0) -> Tensor:
        """Chunks differ in how many positions are live; positions of zeros add nothing."""
        if positions is None:
            room[self.filled : self.filled + len(new)] = new
            return room
        live, longest = new.shape[positions], room.shape[positions]
        if live > longest:
            wider = _empty(new, len(room)).fill_(fill)
            wider[: self.filled].narrow(positions, 0, longest).copy_(room[: self.filled])
            room = wider
        place = room[self.filled : self.filled + len(new)]
        place.narrow(positions, 0, live).copy_(new)
        place.narrow(positions, live, room.shape[positions] - live).fill_(fill)
        return room


def _empty(like: Tensor, examples: int) -> Tensor:
    """Room for more examples in the same order of axes in memory."""
    order = sorted(range(1, like.ndim), key=like.stride, reverse=True)
    room = like.new_empty(examples, *(like.shape[axis] for axis in order))
    return room.permute(0, *(1 + order.index(axis) for axis in range(1, like.ndim)))


def _forms(gradients: Mapping[str, Gradients]) -> dict[str, list[object]]:
    return {
        key: [
            (
                type(f),
                getattr(f, "flipped", None),
                f.a.shape[2:] if isinstance(f, Outer) else None,
                f.groups if isinstance(f, Collapsed) else None,
            )
            for f in g.factors
        ]
        for key, g in gradients.items()
    }


def _agree(held: Part, new: Part) -> bool:
    """Where the data decides what follows a layer, chunks can have weights of their own."""
    if not isinstance(held, Separable | Averaged) or not isinstance(new, Separable | Averaged):
        return True
    sign, weight = _one_weight(held.weight, new.weight)
    tolerance = 1e-12 if weight.dtype == torch.float64 else 1e-5
    return bool((torch.where(new.weight.any(0), new.weight * sign, weight) - weight).abs().max() <= tolerance)


def _one_weight(held: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Each chunk found the weight of a unit up to its sign; one in which the unit is dead says nothing of it."""
    sign = torch.where((held * new).sum(0) < 0, -1, 1).to(held.dtype)
    return sign, torch.where(held.any(0), held, new)
