"""Writing a kernel to disk region by region, so that a killed run goes on where it ended.

A region is one chunk of a zarr 3 array and is marked finished after its numbers, and those of its mirror image, are
in place; a reader or a second run believes the marks alone. Both are written by renaming a complete file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tangentlens.axes import AXES
from tangentlens.distributed import ALONE, Job
from tangentlens.errors import DifferentRun, RefusedForMemory
from tangentlens.kernels.memory import in_units
from tangentlens.kernels.stored import SCHEMA, finished_regions
from tangentlens.kernels.tiles import Span
from tangentlens.kernels.zarr_group import ARRAY, FINISHED, create_group, group_at

DIMS = {2: ("example", "other"), 4: ("example", "output", "other", "other_output")}
assert all(dim in AXES for dims in DIMS.values() for dim in dims)


@dataclass(frozen=True)
class Wanted:
    """What the kernel at a path must be: its form, and where it comes from."""

    groups: tuple[str, ...]
    """Names of the layers, or of the one whole kernel."""
    by_layer: bool
    shape: tuple[int, ...]
    dtype: torch.dtype
    symmetric: bool
    origin: Mapping[str, Any]

    @property
    def attributes(self) -> dict[str, Any]:
        layers = list(self.groups) if self.by_layer else []
        return {"schema": SCHEMA, "symmetric": self.symmetric, "layers": json.dumps(layers), **self.origin}


def prepared(path: Path, wanted: Wanted, region: int) -> int:
    """Make the empty array, or check that what is there is this very kernel; examples of a region either way."""
    if not path.exists():
        _create(path, wanted, region)
        return region
    if not (path / "zarr.json").is_file():
        raise DifferentRun(f"expected a kernel or nothing at {path}, got something else; choose another path")
    group = group_at(path)
    found = dict(group.attrs)
    if found.get("schema") != SCHEMA:
        raise DifferentRun(
            f"expected a kernel of the form {SCHEMA!r} at {path}, got {found.get('schema')!r}; choose another path"
        )
    refuse_another(found, wanted.attributes, path)
    return int(found["region"])


def _create(path: Path, wanted: Wanted, region: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    size = torch.Size(wanted.shape).numel() * len(wanted.groups) * torch.finfo(wanted.dtype).bits // 8
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise RefusedForMemory(
            f"a kernel of {' x '.join(map(str, wanted.shape))} takes {in_units(size)} on disk, "
            f"got {in_units(free)} free at {path.parent}; write it elsewhere, measure fewer examples or outputs, "
            "or use top_spectrum"
        )
    half = len(wanted.shape) // 2
    chunks = [region if axis in (0, half) else length for axis, length in enumerate(wanted.shape)]
    regions = [-(-wanted.shape[axis] // region) for axis in (0, half)]
    dims, shape = list(DIMS[len(wanted.shape)]), list(wanted.shape)
    labels = {}
    if wanted.by_layer:
        dims, shape, chunks = ["layer", *dims], [len(wanted.groups), *shape], [1, *chunks]
        labels["layer"] = wanted.groups
    dtype = str(wanted.dtype).removeprefix("torch.")
    create_group(path, {**wanted.attributes, "region": region}, shape, chunks, regions, dims, dtype, labels)


def refuse_another(found: Mapping[str, Any], mine: Mapping[str, Any], path: Path) -> None:
    """What is said of a kernel here must be what it says of itself."""
    for kind, names in _KINDS.items():
        for name in names:
            if name in mine and not _same(found.get(name), mine[name]):
                raise DifferentRun(
                    f"{path} holds a kernel of another {kind}: expected {name} {_short(found.get(name))}, got "
                    f"{_short(mine[name])}; choose another path, or remove this one; nothing was changed"
                )


_KINDS = {
    "model": ("model", "model_fingerprint"),
    "probe": ("probe", "probe_fingerprint", "others", "others_fingerprint"),
    "kind": ("reduction", "layers", "parameters", "dtype", "symmetric"),
    "choice of outputs (outputs=), or model,": ("outputs", "first_outputs"),
}


def _same(before: Any, here: Any) -> bool:
    if isinstance(before, list) and isinstance(here, list):  # numbers that another device rounds differently
        left, right = torch.tensor(before, dtype=torch.float64), torch.tensor(here, dtype=torch.float64)
        return left.shape == right.shape and torch.allclose(left, right, 1e-3, 1e-4 * float(right.abs().max()), True)
    return bool(before == here)


def _short(value: Any) -> str:
    return str(value) if len(str(value)) <= 60 else str(value)[:57] + "..."


@dataclass
class OnDisk:
    """The writing end, a `Sink`: one region at a time is put together in memory, then written with its mirror image."""

    path: Path
    wanted: Wanted
    grain: int
    job: Job = ALONE
    _finished: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.bool))
    _buffers: dict[str, Tensor] = field(default_factory=dict)
    _group: Any = None

    def begin(self) -> None:
        self._group = group_at(self.path, "r+")
        # one reading for all ranks: they must agree on what is left to do
        self._finished = self.job.from_first(lambda: finished_regions(self.path, self.wanted.symmetric))
        self._buffers.clear()

    def pending(self, rows: Span, columns: Span) -> bool:
        return not bool(self._finished[self._regions(rows), self._regions(columns)].all())

    def add(self, group: str, rows: slice, columns: slice, tile: Tensor, mirror: bool) -> None:
        top, left = rows.start - rows.start % self.grain, columns.start - columns.start % self.grain
        if group not in self._buffers:
            self._buffers[group] = tile.new_zeros(self._extent(top, left))
        buffer, tile_t = self._buffers[group], tile.permute(2, 3, 0, 1) if tile.ndim == 4 else tile.T
        height, width = slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
        both = (slice(None),) if tile.ndim == 4 else ()
        buffer[(height, *both, width, *both)] += tile
        if mirror and top == left:
            buffer[(width, *both, height, *both)] += tile_t

    def done(self, rows: Span, columns: Span) -> None:
        array = self._group[ARRAY]
        for number, group in enumerate(self.wanted.groups):
            numbers = self._buffers.get(group)
            if numbers is None:
                numbers = torch.zeros(self._extent(rows[0], columns[0]), dtype=self.wanted.dtype)
            numbers = numbers.cpu()
            self._put(array, number, rows, columns, numbers)
            if self.wanted.symmetric and rows != columns:
                flipped = numbers.permute(2, 3, 0, 1) if numbers.ndim == 4 else numbers.T
                self._put(array, number, columns, rows, flipped.contiguous())
        self._buffers.clear()
        # a row of marks is one file: it belongs to the process that holds these rows
        self._group[FINISHED][rows[0] // self.grain, columns[0] // self.grain] = 1

    def _put(self, array: Any, number: int, rows: Span, columns: Span, numbers: Tensor) -> None:
        every = (slice(None),) if numbers.ndim == 4 else ()
        place = (slice(*rows), *every, slice(*columns), *every)
        array[(number, *place) if self.wanted.by_layer else place] = numbers.numpy()

    def _extent(self, top: int, left: int) -> tuple[int, ...]:
        half = len(self.wanted.shape) // 2
        size = list(self.wanted.shape)
        size[0], size[half] = min(self.grain, size[0] - top), min(self.grain, size[half] - left)
        return tuple(size)

    def _regions(self, span: Span) -> slice:
        return slice(span[0] // self.grain, -(-span[1] // self.grain))
