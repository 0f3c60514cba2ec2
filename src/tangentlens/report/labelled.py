"""Reading a record: variables, their reference levels, and the last value measured; never a new measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from tangentlens.report.words import is_number

REFERENCES = ("null", "chance", "initial")
IN_WORDS = {"null": "under the null", "chance": "by chance", "initial": "before training"}


def variable(tree: xr.DataTree, path: str) -> xr.DataArray | None:
    """A recorded variable at the steps where it was measured; None when there is no such number anywhere."""
    group, _, name = path.rpartition("/")
    try:
        node = tree[group] if group else tree
    except KeyError:
        return None
    if not isinstance(node, xr.DataTree) or name not in node.data_vars:
        return None
    values = node.dataset[name]
    if "step" not in values.dims or values.size == 0 or values.dtype.kind not in "fiub":
        return None
    values = values.load()
    if values.dims[0] != "step":
        values = values.transpose("step", ...)
    measured = np.isfinite(values.values).reshape(values.sizes["step"], -1).any(axis=1)
    if not measured.any():
        return None
    return values if measured.all() else values.isel(step=np.flatnonzero(measured))


def reference(tree: xr.DataTree, path: str, role: str) -> xr.DataArray | None:
    """The level a variable names as its null, chance, initial, low or high, along the variable's own steps.

    >>> steps = {"step": [0, 1]}
    >>> data = xr.Dataset({"a": ("step", [0.2, 0.9], {"chance": "b"}), "b": ("step", [0.5, 0.5])}, coords=steps)
    >>> reference(xr.DataTree.from_dict({"/g": data}), "g/a", "chance").values
    array([0.5, 0.5])
    """
    values = variable(tree, path)
    if values is None or role not in values.attrs:
        return None
    level = variable(tree, f"{path.rpartition('/')[0]}/{values.attrs[role]}")
    return None if level is None else level.reindex(step=values["step"])


def last(values: xr.DataArray | None) -> float:
    """The last finite value along the steps; NaN when there is none.

    >>> last(xr.DataArray([1.0, 2.0, float("nan")], dims="step"))
    2.0
    """
    if values is None:
        return float("nan")
    flat = np.asarray(values, dtype=float).ravel()
    finite = flat[np.isfinite(flat)]
    return float(finite[-1]) if finite.size else float("nan")


def steps_of(values: xr.DataArray) -> list[int]:
    """Training steps of a variable; positions when the record has no step coordinate."""
    return [int(step) for step in (values["step"].values if "step" in values.coords else range(values.sizes["step"]))]


def recorded_steps(tree: xr.DataTree) -> list[int]:
    """The steps of the record: every group has the same."""
    for group in tree.children.values():
        if "step" in group.coords and group.coords["step"].ndim == 1:
            return steps_of(group.coords["step"])
    return []


def first_step(values: xr.DataArray | None, threshold: float) -> int | None:
    """The first step at which a series reaches the threshold and stays there to the end; None if it does not.

    >>> first_step(xr.DataArray([0.9, 0.1, 0.6, 0.8], coords={"step": [0, 10, 20, 30]}), 0.5)
    20
    """
    if values is None:
        return None
    finite = values.isel(step=np.flatnonzero(np.isfinite(np.asarray(values, dtype=float))))
    reached = np.asarray(finite) >= threshold
    if not reached.size or not reached[-1]:
        return None
    below = np.flatnonzero(~reached)
    return steps_of(finite)[int(below[-1]) + 1 if below.size else 0]


def names_along(values: xr.DataArray, dim: str, word: str = "") -> list[str]:
    """The names along a dimension, or numbers counted from one when it has none."""
    if dim in values.coords and values[dim].dtype.kind in "UOST":
        return [str(name) for name in values[dim].values]
    return [f"{word or dim} {i + 1}" for i in range(values.sizes[dim])]


def attribute(tree: xr.DataTree, name: str, default: Any = "") -> Any:
    """A root attribute; what is written as JSON is read as such."""
    value = tree.attrs.get(name, default)
    if isinstance(value, str) and value[:1] in "[{":
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value.item() if isinstance(value, np.generic) else value


def axis_label(values: xr.DataArray, otherwise: str) -> str:
    """What an axis says: the variable's long name and units."""
    name, units = str(values.attrs.get("long_name") or otherwise), str(values.attrs.get("units") or "")
    return f"{name} ({units})" if units and units != "1" else name


def bounds(values: xr.DataArray) -> tuple[float, float] | None:
    """The interval a variable says its values lie in."""
    ends = values.attrs.get("bounds")
    if isinstance(ends, str):
        try:
            ends = json.loads(ends)
        except json.JSONDecodeError:
            return None
    if isinstance(ends, Sequence | np.ndarray) and len(ends) == 2 and all(is_number(end) for end in ends):
        return float(ends[0]), float(ends[1])
    return None


def errors(tree: xr.DataTree) -> list[dict[str, Any]]:
    """Measures that failed, in the order they did: step, measure, type, message."""
    if "errors" not in tree.children:
        return []
    log = tree["errors"].attrs.get("log", "[]")
    try:
        found = json.loads(log) if isinstance(log, str) else list(log)
    except json.JSONDecodeError:
        return [{"step": None, "measure": None, "type": "unreadable log", "message": str(log)[:200]}]
    return [dict(entry) for entry in found]
