"""Training steps in a figure: which are shown, where they lie on the axis, and the frames the slider moves through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

FRAMES = 40  # steps a slider holds at most
NUMBERS = 250_000  # numbers all frames of one figure hold at most: about 1.3 MB of the page


def thinned(count: int, limit: int) -> np.ndarray:
    """Positions of at most `limit` of `count` things, evenly spread, the first and the last among them.

    >>> thinned(5, 9), thinned(100, 4)
    (array([0, 1, 2, 3, 4]), array([ 0, 33, 66, 99]))
    """
    if count <= limit:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, max(limit, 2)).round().astype(int))


def thinned_modes(count: int, limit: int) -> np.ndarray:
    """As `thinned`, but dense at the largest modes, where a spectrum is read, and ever sparser down the tail."""
    if count <= limit:
        return np.arange(count)
    head = limit // 2
    return np.unique(np.concatenate([np.arange(head), np.geomspace(head, count - 1, limit - head).round().astype(int)]))


def slider_positions(count: int, numbers_per_frame: int) -> np.ndarray:
    """Positions of the recorded steps a slider shows: as many as `FRAMES` and the size of the page allow."""
    affordable = max(2, NUMBERS // max(1, numbers_per_frame))
    return thinned(count, min(FRAMES, affordable))


@dataclass(frozen=True)
class StepAxis:
    """Where steps lie along x: as they are, or on a logarithm with step 0 set apart."""

    steps: tuple[int, ...]
    log: bool
    layout: dict[str, Any]

    def places(self, steps: Sequence[int] | np.ndarray) -> np.ndarray:
        """A logarithm has no place for step 0: it is drawn at half the first later step, where its tick says 0."""
        values = np.asarray(steps, dtype=float)
        return np.where(values > 0, values, self._zero()) if self.log else values

    def _zero(self) -> float:
        return min(step for step in self.steps if step > 0) / 2

    def meta(self) -> dict[str, Any]:
        """What the page needs to show on this axis where its slider stands."""
        kept = [self.steps[i] for i in thinned(len(self.steps), 400)]
        return {"steps": kept, "places": [float(place) for place in self.places(kept)]}


def step_axis(steps: Sequence[int]) -> StepAxis:
    """The axis of these steps: logarithmic when most of them lie in the first tenth of the way."""
    later = np.asarray([step for step in steps if step > 0], dtype=float)
    layout: dict[str, Any] = {"title": {"text": "step"}}
    if later.size < 5 or later.max() / later.min() <= 100 or np.median(later) >= 0.2 * later.max():
        return StepAxis(tuple(steps), False, layout)
    axis = StepAxis(tuple(steps), True, layout)
    exponents = range(int(np.ceil(np.log10(later.min()))), int(np.log10(later.max())) + 1)
    ticks = {10.0**exponent: f"{10**exponent:,}" for exponent in exponents}
    if min(steps) <= 0:
        ticks = {float(axis.places([0])[0]): "0", **ticks}
    layout.update({"type": "log", "tickvals": list(ticks), "ticktext": list(ticks.values())})
    return axis


def say_left_out(figure: go.Figure, sentence: str) -> None:
    """Leave a sentence in the figure that the page prints under it: what the record holds and the figure does not."""
    figure.update_layout(meta={**(figure.layout.meta or {}), "left_out": sentence})


def with_frames(
    figure: go.Figure,
    steps: Sequence[int],
    positions: Sequence[int] | np.ndarray,
    frame: Callable[[int], list[dict[str, Any]]],
    *,
    traces: Sequence[int],
    layout: Callable[[int], dict[str, Any]] | None = None,
) -> go.Figure:
    """Give a figure the frames its slider moves through; `frame(i)` is what the traces hold at recorded step i."""
    if len(positions) < len(steps):
        say_left_out(figure, f"The slider holds {len(positions)} of {len(steps):,} recorded steps.")
    figure.frames = [
        go.Frame(
            name=str(int(steps[i])), data=frame(int(i)), traces=list(traces), layout=layout(int(i)) if layout else None
        )
        for i in positions
    ]
    return figure
