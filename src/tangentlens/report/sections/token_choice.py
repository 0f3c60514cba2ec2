"""Which tokens and labels a figure of the token section shows."""

from __future__ import annotations

import numpy as np
import xarray as xr

from tangentlens.report.figures.clouds import POINTS
from tangentlens.report.figures.steps import thinned

LABELS = 4  # labels that get a figure of their own


def shown_labels(scores: xr.DataArray) -> list[int]:
    """Two labels mirror each other (scores are centred over labels): one is enough."""
    return [1] if scores.sizes["label"] == 2 else list(range(min(LABELS, scores.sizes["label"])))


def kept_tokens(values: xr.DataArray) -> np.ndarray:
    """The most frequent tokens where counts are known, else an even selection."""
    if "count" in values.coords and values.sizes["token"] > POINTS:
        return np.sort(np.argsort(-np.asarray(values["count"], dtype=float))[:POINTS])
    return thinned(values.sizes["token"], POINTS)


def polarities(values: xr.DataArray, keep: np.ndarray) -> dict[str, list[int]] | None:
    if "polarity" not in values.coords:
        return None
    signs = np.asarray(values["polarity"], dtype=float)[keep]
    words = {"positive": 1, "negative": -1, "neutral": 0}
    found = {word: np.flatnonzero(signs == sign).tolist() for word, sign in words.items()}
    return {word: members for word, members in found.items() if members} or None
