"""zarr arrays of a run, read with their types said: zarr answers with anything it can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr


def array_at(root: zarr.Group, path: str) -> zarr.Array:
    found = root[path]
    assert isinstance(found, zarr.Array)
    return found


def values_of(array: zarr.Array) -> np.ndarray:
    return np.asarray(array[...])


def dims_of(array: zarr.Array) -> tuple[str, ...]:
    """The names of an array's dimensions; none where it has none."""
    names: Any = getattr(array.metadata, "dimension_names", None)
    return tuple(names or ())
