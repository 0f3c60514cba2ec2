"""Reading a run back: labelled, lazily, whole steps only; nothing of torch is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

from tangentlens.record.store import BRANCH, refuse_damaged, repository_at


def open_record(run: str | Path) -> xr.DataTree:
    """The record of a run as it stands at its last commit; values are read when they are used.

    What is committed later is not seen: open it again, which takes some ten milliseconds a group.
    """
    repository = repository_at(run)
    store = repository.readonly_session(BRANCH).store
    try:
        root = zarr.open_group(store, mode="r")
    except FileNotFoundError:
        refuse_damaged(repository, run)
        return xr.DataTree()  # made, and not begun yet
    nodes: dict[str, xr.Dataset] = {"/": xr.Dataset(attrs=dict(root.attrs))}
    groups = (path for path, item in root.members(max_depth=None) if isinstance(item, zarr.Group))
    for path in sorted(groups):
        if not path.startswith("_"):
            nodes[f"/{path}"] = _with_plain_text(xr.open_zarr(store, group=path, consolidated=False, chunks=None))
    return xr.DataTree.from_dict(nodes)


def recorded_steps(tree: xr.DataTree) -> list[int]:
    """The steps that are in the record."""
    for node in tree.subtree:
        if "step" in node.coords:
            return [int(step) for step in node.coords["step"].values]
    return []


def errors(tree: xr.DataTree) -> list[dict[str, Any]]:
    """What went wrong while recording: step, measure, type and message of each failure."""
    return json.loads(tree["errors"].attrs.get("log", "[]")) if "errors" in tree.children else []


def _with_plain_text(data: xr.Dataset) -> xr.Dataset:
    """Text as numpy's oldest kind of it, which pandas, plotly and netCDF all take."""
    text = {
        name: (c.dims, np.array(c.values.tolist(), dtype=str)) for name, c in data.coords.items() if c.dtype.kind == "T"
    }
    return data.assign_coords(text) if text else data
