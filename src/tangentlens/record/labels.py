"""How long a group's dimensions are, and what is written along them: layers, tokens, families, and fixed data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr

from tangentlens.record.arrays import dims_of, values_of
from tangentlens.record.measure import Row

Fixed = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""Data that do not move with the steps: dimensions and values by name."""


@dataclass
class Labels:
    """The coordinates of one group. They grow with what is recorded, and never change what they already say."""

    attrs: dict[str, Any]
    index: dict[str, list[Any]]
    fixed: Fixed
    sizes: dict[str, int] = field(default_factory=dict)
    unsaved: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, group: zarr.Group) -> Labels:
        """As they stand on disk."""
        labels = cls(dict(group.attrs), {}, {})
        for name, array in group.arrays():
            dims = dims_of(array)
            labels.sizes.update({dim: size for dim, size in zip(dims, array.shape, strict=True) if dim != "step"})
            if dims == (name,) and name != "step":
                labels.index[name] = list(values_of(array))
            elif dims[:1] != ("step",):
                labels.fixed[name] = (dims, values_of(array))
        return labels

    def learn(self, row: Row) -> None:
        """Take up a row's labels and lengths; a row that contradicts them is refused and changes nothing."""
        along, fixed = _parted(row.labels)
        self._check(row, along, fixed)
        for name, (dims, values) in fixed.items():
            self._fix(name, dims, values)
        for dim, names in along.items():
            self._extend(dim, names)
        for dim, size in zip(row.dims, row.values.shape, strict=True):
            self.sizes[dim] = max(self.sizes.get(dim, 0), size)

    def _check(self, row: Row, along: dict[str, list[Any]], fixed: Fixed) -> None:
        lengths = dict(zip(row.dims, row.values.shape, strict=True))
        for dim, size in lengths.items():
            if dim in along and len(along[dim]) != size:
                raise ValueError(f"{len(along[dim])} labels of {dim} for a value of shape {row.values.shape}")
            if dim in self.index and dim not in along and size > len(self.index[dim]):
                raise ValueError(f"{dim} has {len(self.index[dim])} labels, got {size} values; label them all")

        def length(dim: str) -> int:
            names = dict.fromkeys([*self.index.get(dim, []), *along.get(dim, [])])
            return max(self.sizes.get(dim, 0), lengths.get(dim, 0), len(names))

        for name, (dims, values) in {**fixed, **self.fixed}.items():
            for dim, size in zip(dims, values.shape, strict=True):
                if length(dim) not in (0, size):
                    raise ValueError(
                        f"{name} is fixed with {size} entries along {dim}, got {length(dim)}; keep one length"
                    )

    def _extend(self, dim: str, given: Sequence[Any]) -> None:
        known = self.index.setdefault(dim, [])
        new = [label for label in given if label not in set(known)]
        if new:
            known.extend(new)
            self.sizes[dim] = max(self.sizes.get(dim, 0), len(known))
            self.unsaved.add(dim)

    def _fix(self, name: str, dims: tuple[str, ...], values: np.ndarray) -> None:
        if name not in self.fixed:
            self.fixed[name] = (dims, values)
            self.sizes.update(dict(zip(dims, values.shape, strict=True)))
            self.unsaved.add(name)

    def shape(self, dims: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.sizes[dim] for dim in dims)

    def placed(self, row: Row) -> np.ndarray:
        """The row's values where their labels stand; places it does not name are missing."""
        values = row.values
        for axis, dim in enumerate(row.dims):
            labels = row.labels.get(dim)
            known = self.index.get(dim, [])
            if labels is None or list(_plain(labels)) == known[: len(labels)]:
                continue
            places = [known.index(label) for label in _plain(labels)]
            moved = np.full((*values.shape[:axis], len(known), *values.shape[axis + 1 :]), np.nan, values.dtype)
            moved[(slice(None),) * axis + (places,)] = values
            values = moved
        return values

    def save(self, root: zarr.Group, path: str) -> None:
        """Write what is new, in the session that also writes the values."""
        for name in sorted(self.unsaved):
            dims, values = ((name,), _plain(self.index[name])) if name in self.index else self.fixed[name]
            array = root.create_array(
                f"{path}/{name}", shape=values.shape, dtype=values.dtype, chunks=tuple(max(1, n) for n in values.shape),
                dimension_names=dims, compressors=None, overwrite=True,
            )  # fmt: skip
            array[...] = values
        if self.unsaved & set(self.fixed):
            self.attrs["coordinates"] = " ".join(sorted(self.fixed))  # xarray reads these as coordinates
        self.unsaved.clear()


def _parted(labels: Mapping[str, Any]) -> tuple[dict[str, list[Any]], Fixed]:
    """What is written along dimensions, and what is fixed data of the group."""
    along: dict[str, list[Any]] = {}
    fixed: Fixed = {}
    for name, given in labels.items():
        if isinstance(given, tuple) and len(given) == 2 and not isinstance(given[0], str | int | float):
            fixed[name] = (tuple(given[0]), _plain(given[1]))
        else:
            along[name] = list(_plain(given))
    return along, fixed


def _plain(values: Any) -> np.ndarray:
    """Numbers as they are and everything else as text."""
    array = np.asarray(values)
    if array.dtype.kind in "iufb":
        return array
    return np.asarray([str(value) for value in array.ravel()], dtype=np.dtypes.StringDType()).reshape(array.shape)
