"""Tables that are looked up: embedding, embedding bag, indexing with integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlens.capture.factors import Formed, Lookup
from tangentlens.capture.layout import Layout, Ragged, Regular
from tangentlens.capture.rules.reading import Reading, Rows


@dataclass(frozen=True)
class Table:
    """Row `ids` of the table is the result at each place; the padding row's gradient is dropped, as torch does."""

    ids: Tensor
    padding: int | None = None

    @property
    def example_axes(self) -> tuple[int, ...]:
        return tuple(range(self.ids.ndim))

    def factor(self, gradients: Tensor, layout: Layout, examples: int, shape: torch.Size) -> Lookup | Formed:
        places = self.ids.ndim
        axis = layout.axis if isinstance(layout, Regular) else 0
        ids, b = self.ids, gradients.flatten(places + 1) if gradients.ndim > places + 1 else gradients[..., None]
        if isinstance(layout, Regular):
            rows = Rows(layout, examples, axis, gradients.shape[1:])
            ids = rows.sort(ids, axis).flatten(1)
            b = rows.sort(b, axis + 1).flatten(2, -2)
        else:
            owner = layout.ids.flatten(places).amax(-1).flatten() if layout.ids.ndim > places else layout.ids.flatten()
            rows = Rows(Ragged(owner), examples, 0, owner.shape)
            ids = rows.sort(ids.flatten(), 0, fill=-1)
            b = rows.sort(b.flatten(1, places), 1)
        if self.padding is not None:
            b = torch.where((ids == self.padding)[:, None, :, None], 0, b)
        return Lookup(ids, b)


@dataclass(frozen=True)
class Bag:
    """Sum (or mean) of table rows: every entry of a bag is a place with the bag's gradient."""

    ids: Tensor
    bag: Tensor
    weight: Tensor | None
    example_axes: tuple[int, ...] = (0,)

    def factor(self, gradients: Tensor, layout: Layout, examples: int, shape: torch.Size) -> Lookup:
        whole = gradients.shape[1:]
        ids = layout.ids(whole, examples, gradients.device) if isinstance(layout, Regular) else layout.ids
        owner = ids.expand(whole).amax(1)[self.bag]
        rows = Rows(Ragged(owner), examples, 0, owner.shape)
        b = gradients[:, self.bag]
        b = b if self.weight is None else b * self.weight.to(b)[:, None]
        return Lookup(rows.sort(self.ids, 0, fill=-1), rows.sort(b, 1))


def _embedding(node: Any, slot: int) -> Reading | None:
    if node._saved_scale_grad_by_freq:  # torch's gradient then depends on the whole batch
        return None
    padding = _signed(node._saved_padding_idx)
    return Table(node._saved_indices, padding if padding >= 0 else None)


def _embedding_bag(node: Any, slot: int) -> Reading | None:
    ids, offsets, mode = node._saved_indices, node._saved_offsets, node._saved_mode
    if slot != 0 or mode == 2 or node._saved_scale_grad_by_freq:
        return None
    bag = torch.searchsorted(offsets, torch.arange(len(ids), device=ids.device), right=True) - 1
    weight = node._saved_per_sample_weights
    kept = (ids != _signed(node._saved_padding_idx)).double()
    if mode == 1:
        weight = kept / torch.zeros(len(offsets), device=ids.device).double().index_add_(0, bag, kept)[bag].clamp(min=1)
    elif bool((kept == 0).any()):
        weight = kept if weight is None else weight * kept
    return Bag(ids, bag, weight)


def _index(node: Any, slot: int) -> Reading | None:
    indices = node._saved_indices
    single = len(indices) == 1 and indices[0] is not None and indices[0].dtype != torch.bool
    return Table(indices[0]) if slot == 0 and single and bool((indices[0] >= 0).all()) else None


def _index_select(node: Any, slot: int) -> Reading | None:
    return Table(node._saved_index) if slot == 0 and node._saved_dim == 0 and node._saved_index.ndim == 1 else None


def _signed(value: int) -> int:
    """Saved integers come back unsigned: torch's -1 reads 2**64 - 1."""
    return value - (1 << 64) if value >= 1 << 63 else value


RULES = {
    "EmbeddingBackward0": _embedding,
    "EmbeddingBagBackward0": _embedding_bag,
    "IndexBackward0": _index,
    "IndexSelectBackward0": _index_select,
}
