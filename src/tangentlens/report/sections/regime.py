"""The regime of the forward features: a recorded code, its meaning, and the thresholds it was decided by."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from tangentlens.report.labelled import last, variable
from tangentlens.report.words import is_number, number


def regime_name(tree: xr.DataTree) -> str:
    """The regime at the last recorded step in words; empty when none was recorded."""
    codes = variable(tree, "forward/regime")
    value = last(codes)
    if codes is None or not is_number(value):
        return ""
    meanings = str(codes.attrs.get("flag_meanings", "coefficient_learning minimal_feature extended_feature")).split()
    known = np.atleast_1d(codes.attrs.get("flag_values", range(len(meanings)))).tolist()
    named = dict(zip((int(code) for code in known), meanings, strict=False))
    return named.get(int(value), f"code {int(value)}").replace("_", " ")


def regime_rows(tree: xr.DataTree) -> list[tuple[str, Any]]:
    """Rows of a table: the regime, and each threshold it rests on."""
    name = regime_name(tree)
    if not name:
        return []
    codes = variable(tree, "forward/regime")
    assert codes is not None  # it has a name
    return [
        ("regime", name),
        *((f"threshold: {key.replace('_', ' ')}", value) for key, value in thresholds(codes).items()),
    ]


def thresholds(codes: xr.DataArray) -> dict[str, Any]:
    """The thresholds stored beside the code, a JSON object."""
    text = codes.attrs.get("thresholds", "{}")
    try:
        found = json.loads(text) if isinstance(text, str) else dict(text)
    except (json.JSONDecodeError, TypeError):
        return {"as recorded": str(text)}
    return (
        {str(key): value for key, value in found.items()} if isinstance(found, dict) else {"as recorded": number(found)}
    )
