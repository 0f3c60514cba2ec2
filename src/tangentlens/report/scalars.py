"""Which observed number is which: accuracies and losses of the training and the held-out set, by their usual names."""

from __future__ import annotations

import re
from typing import Literal

import xarray as xr

from tangentlens.report.labelled import variable

TRAIN = ("train", "training")
HELD_OUT = ("test", "val", "valid", "validation", "eval", "dev")
"""In the order in which they are preferred where a run has several."""
PERCENT_FROM = 1.5  # no share reaches it: an accuracy that does was logged in per cent

Kind = Literal["accuracy", "loss", "other"]


def kind(name: str) -> Kind:
    """What a scalar is, by its name.

    >>> kind("val_acc"), kind("eval_accuracy"), kind("train_loss"), kind("acceleration")
    ('accuracy', 'accuracy', 'loss', 'other')
    """
    if "accuracy" in name.lower() or "acc" in _words(name):
        return "accuracy"
    return "loss" if "loss" in name.lower() else "other"


def is_held_out(name: str) -> bool:
    return bool(_words(name) & set(HELD_OUT))


def shown(name: str) -> str:
    return name.replace("_", " ")


def order(name: str) -> tuple[int, str]:
    """Train before held-out before the rest, so that a colour means the same on every page."""
    words = _words(name)
    known = (TRAIN, HELD_OUT[:1], HELD_OUT[1:])
    return next((place for place, some in enumerate(known) if words & set(some)), len(known)), name


def accuracy(tree: xr.DataTree, name: str) -> xr.DataArray | None:
    """A recorded accuracy as a share, also where it was logged in per cent."""
    values = variable(tree, f"training/{name}")
    if values is None or values.ndim != 1:
        return None
    return values / 100 if float(values.max()) > PERCENT_FROM else values


def held_out(tree: xr.DataTree, which: Kind) -> str | None:
    """The name of the accuracy or loss on examples that were not trained on; None when none was recorded."""
    return _first(tree, which, HELD_OUT)


def trained_on(tree: xr.DataTree, which: Kind) -> str | None:
    """The name of the accuracy or loss on the training set; a name that says no set is its, as in most loops."""
    said = _first(tree, which, TRAIN)
    rest = [name for name in _scalars(tree, which) if order(name)[0] == 3 and not name.startswith("probe")]
    return said or (rest[0] if rest else None)


def _first(tree: xr.DataTree, which: Kind, words: tuple[str, ...]) -> str | None:
    names = _scalars(tree, which)
    return next((name for word in words for name in names if word in _words(name)), None)


def _scalars(tree: xr.DataTree, which: Kind) -> list[str]:
    if "training" not in tree.children:
        return []
    names = sorted((str(name) for name in tree["training"].data_vars if kind(str(name)) == which), key=len)
    found = {name: variable(tree, f"training/{name}") for name in names}
    return [name for name, values in found.items() if values is not None and values.ndim == 1]


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", name.lower()))
