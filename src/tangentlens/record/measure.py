"""What to record: a name, the words of its axes, and a function of the snapshot of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tangentlens.axes import AXES

if TYPE_CHECKING:
    from tangentlens.record.schedule import Schedule
    from tangentlens.record.snapshot import Snapshot

DIMENSIONS = frozenset(AXES) - {"step"}
"""Words for the dimensions of a measure; the step comes first by itself."""
OWN_GROUPS = ("overhead", "errors")


@dataclass(frozen=True)
class Measure:
    """One variable of the record: `group/variable`, its dimensions after `step`, and how a snapshot gives it.

    `compute` returns a tensor, an array, a number, or a mapping whose keys become the labels of the first dimension. A
    name with a star, `ansatz/layers/*/nfm`, spreads a mapping over one subgroup a key. `coords` are labels and fixed
    data of the group: a sequence for a dimension, or (dimensions, values). `attrs` describe the variable
    (docs/record.md). `needs` names what the measure cannot do without: "targets", "initial". `schedule` thins the
    recorder's own.

    >>> norm = Measure("mine/norm", (), lambda snapshot: sum(p.norm() for p in snapshot.model.parameters()))
    """

    name: str
    dims: tuple[str, ...]
    compute: Callable[[Snapshot], Any]
    coords: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        group, _, variable = self.name.rpartition("/")
        if not group or not variable or self.name.startswith("/") or group.split("/")[0] in OWN_GROUPS:
            raise ValueError(
                f"a measure is named group/variable, outside of {' and '.join(OWN_GROUPS)}, got {self.name!r}; "
                "as in 'mine/sharpness'"
            )
        unknown = [dim for dim in self.dims if dim not in DIMENSIONS]
        if unknown:
            raise ValueError(
                f"dimensions after step are among {', '.join(sorted(DIMENSIONS))}, "
                f"got {', '.join(unknown)} for {self.name}; choose the word that fits"
            )
        if len(set(self.dims)) < len(self.dims):
            raise ValueError(f"each dimension once, got {self.dims} for {self.name}; a square matrix is (unit, other)")


@dataclass(frozen=True)
class Row:
    """The value of one variable at one step, ready to be stored."""

    dims: tuple[str, ...]
    values: np.ndarray
    labels: Mapping[str, Any]
    attrs: Mapping[str, Any]


def rows_of(measure: Measure, value: Any) -> dict[str, Row]:
    """A computed value as rows by full variable name; several when a mapping spreads over subgroups."""
    if "*" not in measure.name:
        return {measure.name: _row(measure, value)}
    if not isinstance(value, Mapping):
        raise ValueError(f"{measure.name} should compute a mapping for its star, got {type(value).__name__}")
    return {measure.name.replace("*", _safe(str(key))): _row(measure, item) for key, item in value.items()}


def _row(measure: Measure, value: Any) -> Row:
    labels = dict(measure.coords)
    if isinstance(value, Mapping):
        if not measure.dims:
            raise ValueError(f"{measure.name} has no dimension for the keys of a mapping; name one, as in ('layer',)")
        labels[measure.dims[0]] = [str(key) for key in value]
        value = np.stack([as_array(item) for item in value.values()]) if value else np.zeros((0,) * len(measure.dims))
    values = as_array(value)
    if values.ndim != len(measure.dims):
        raise ValueError(
            f"{measure.name} has dimensions {measure.dims}, but its value has shape {values.shape}; "
            "name one dimension for each axis"
        )
    for dim, given in labels.items():
        _check_labels(measure.name, dim, given, dict(zip(measure.dims, values.shape)).get(dim))
    return Row(measure.dims, values, labels, measure.attrs)


def _check_labels(name: str, dim: str, given: Any, size: int | None) -> None:
    """Labels that could not be written: found here they cost one variable, at the store the rest of the record."""
    if isinstance(given, tuple) and len(given) == 2 and not isinstance(given[0], str | int | float):
        if np.ndim(given[1]) != len(given[0]):
            raise ValueError(
                f"{name} has {dim} along {tuple(given[0])}, of shape {np.shape(given[1])}; give each an axis"
            )
        return
    if not all(isinstance(label, str | int | float | np.generic) for label in given):
        raise ValueError(f"{name} labels {dim} by texts or numbers, got {list(given)[:3]}; join each into one text")
    if size is not None and len(given) != size:
        raise ValueError(f"{name} has {len(given)} labels of {dim} for {size} values; label them all")


def as_array(value: Any) -> np.ndarray:
    """A number, array or tensor as float32 or float64, so that NaN can say "not measured"."""
    if hasattr(
        value, "detach"
    ):  # a tensor, told without importing torch: readers of records come through this module too
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() and value.itemsize < 4 else value).numpy()
    array = np.asarray(value)
    if array.dtype.kind in "c" or array.dtype.kind not in "fiub":
        raise ValueError(f"a recorded value is real and numeric, got {array.dtype}; record its parts as two variables")
    return np.array(array, order="C", dtype=np.float32 if array.dtype in (np.float16, np.float32) else np.float64)


def _safe(key: str) -> str:
    """A layer's name as one group: the model itself, whose name is empty, and slashes have no group of their own."""
    return key.replace("/", "_") or "model"
