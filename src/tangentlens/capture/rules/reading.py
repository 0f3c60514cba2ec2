"""What a rule hands back, and how rows of an operation's result are sorted by example."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tangentlens.capture.factors import Factor
from tangentlens.capture.layout import Layout, Regular


@runtime_checkable
class Reading(Protocol):
    """One use of a parameter. `example_axes` are the axes of the result along which examples may lie."""

    @property
    def example_axes(self) -> tuple[int, ...]: ...

    def factor(self, gradients: Tensor, layout: Layout, examples: int, shape: torch.Size) -> Factor:
        """From (output, *result) gradients to the gradient of the parameter-made value of this shape."""
        ...


class Rows:
    """Sorts rows of a merged axis by example: a view where the layout is regular, a padded gather where it is not."""

    def __init__(self, layout: Layout, examples: int, axis: int, shape: torch.Size) -> None:
        self.examples = examples
        self.regular = layout if isinstance(layout, Regular) else None
        if not isinstance(layout, Regular):
            others = [d for d in range(len(shape)) if d != axis]
            self.ids = layout.ids.amax(others) if others else layout.ids
            self._index_by_example()

    def _index_by_example(self) -> None:
        counts = torch.bincount(self.ids.clamp(min=-1) + 1, minlength=self.examples + 1)[1:]
        longest = max(int(counts.max()), 1)
        dead = len(self.ids)  # one row past the end, which sort() keeps at zero
        self.index = torch.full((self.examples, longest), dead, device=self.ids.device)
        order = torch.argsort(self.ids, stable=True)
        order = order[(self.ids[order] >= 0)]
        starts = torch.cumsum(counts, 0) - counts
        owner = self.ids[order]
        self.index[owner, torch.arange(len(order), device=order.device) - starts[owner]] = order

    def sort(self, rows: Tensor, axis: int, fill: float = 0) -> Tensor:
        """(..., row, ...) -> (example, ..., position, ...)"""
        if self.regular is not None:
            outer, inner = self.regular.outer, self.regular.inner
            split = rows.unflatten(axis, (outer, self.examples, inner)).movedim(axis + 1, 0)
            return split.flatten(axis + 1, axis + 2)
        padded = torch.cat([rows, rows.new_full((*rows.shape[:axis], 1, *rows.shape[axis + 1 :]), fill)], axis)
        sorted_rows = padded.index_select(axis, self.index.flatten()).unflatten(axis, self.index.shape)
        return sorted_rows.movedim(axis, 0)
