"""One variable on disk: a zarr array that grows by a row a step, its unfinished chunk kept in memory.

Rows are put into the store as whole chunks, beside the array's metadata. Going through zarr's own append costs 3 ms a
variable and step, mostly Python: as much as training a small network in between. What is written is plain zarr 3,
readable by anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import zarr

from tangentlens.record.arrays import array_at, values_of

CHUNK_BYTES = 16_384
"""Aimed at: smaller means more files to read, larger more bytes written again with every step."""
CHUNK_ROWS = 64


class Column:
    """The writer's end of one variable: `put` gives what has to be written for one more step."""

    def __init__(self, path: str, metadata: dict[str, Any], dtype: np.dtype) -> None:
        self.path, self.metadata = path, metadata
        shape: list[int] = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        self.rows, self.rest = shape[0], tuple(metadata["shape"][1:])
        self.fill = np.nan if dtype.kind == "f" else 0
        self.buffer = np.full(shape, self.fill, dtype=dtype)

    @classmethod
    def new(cls, path: str, dims: tuple[str, ...], rest: tuple[int, ...], dtype: np.dtype, attrs: Any = None) -> Column:
        """A variable without rows; one chunk spans all dimensions but the step."""
        row = max(1, int(np.prod(rest)) * dtype.itemsize)
        rows = int(np.clip(CHUNK_BYTES // row, 1, CHUNK_ROWS))
        metadata = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [0, *rest],
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [rows, *(max(1, n) for n in rest)]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": "NaN" if dtype.kind == "f" else 0,
            # not compressed: the bytes of a chunk are those of the numpy array
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "dimension_names": ["step", *dims],
            "attributes": dict(attrs or {}),
        }
        return cls(path, metadata, dtype)

    @classmethod
    def on_disk(cls, path: str, array: zarr.Array) -> Column:
        """As it was left, with the rows of its unfinished chunk."""
        column = cls(path, json.loads(json.dumps(array.metadata.to_dict())), array.dtype)
        started = array.shape[0] % column.rows
        if started:
            column.buffer[:started, ...] = np.asarray(array[array.shape[0] - started :])
        return column

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(self.metadata["dimension_names"])

    def put(self, index: int, value: np.ndarray | None) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The metadata with one row more, and the chunk that holds the row; no chunk for a missing value."""
        self.metadata["shape"] = [index + 1, *self.rest]
        head = {f"{self.path}/zarr.json": json.dumps(self.metadata).encode()}
        place = index % self.rows
        if place == 0:
            self.buffer[:] = self.fill
        if value is None:
            return head, {}
        where: tuple[Any, ...] = (place, *(slice(0, size) for size in value.shape))
        self.buffer[where] = value
        key = "/".join([self.path, "c", str(index // self.rows), *["0"] * len(self.rest)])
        return head, {key: self.buffer.tobytes()}

    def fits(self, shape: Iterable[int]) -> bool:
        return all(size <= room for size, room in zip(shape, self.rest, strict=True))


def widened(root: zarr.Group, column: Column, rest: tuple[int, ...]) -> tuple[Column, dict[str, bytes]]:
    """The same column with room for a longer row, and its rows so far, which end in missing values."""
    kept = values_of(array_at(root, column.path))
    wider = Column.new(column.path, column.dims[1:], rest, kept.dtype, column.metadata["attributes"])
    del root[column.path]
    chunks: dict[str, bytes] = {}
    for index, value in enumerate(kept):
        chunks |= wider.put(index, value)[1]
    return wider, chunks
