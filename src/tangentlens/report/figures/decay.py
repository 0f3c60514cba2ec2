"""What falls with the mode index: spectra and cumulative curves, moving through the recorded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tangentlens.report.figures.steps import slider_positions, thinned_modes, with_frames
from tangentlens.report.figures.style import POWERS, REFERENCE, REFERENCE_DASHES, blank, drawable, series_colours
from tangentlens.report.words import shortened

MODES = 600  # modes a line shows at most, densest at the largest


def decay(
    lines: Mapping[str, Any],
    steps: Sequence[int],
    *,
    y: str,
    references: Mapping[str, Any] | None = None,
    gaps: Mapping[int, Sequence[int]] | None = None,
    log: bool = True,
    log_x: bool = True,
    first: int = 1,
    range_y: tuple[float, float] | None = None,
    x: str = "mode",
    height: int = 360,
    share: bool = False,
) -> go.Figure:
    """Lines over modes, values (step, mode) each, the last step shown first; modes are counted from `first`.

    `references` are grey lines over modes that do not move; `gaps` says after which mode counts, at each position of
    `steps`, the spectrum falls off a cliff.
    """
    series = {name: np.asarray(values, dtype=np.float32) for name, values in lines.items()}
    still = {name: np.asarray(values, dtype=np.float32) for name, values in (references or {}).items()}
    figure = blank(x=x, y=y, height=height)
    for (name, values), short, dash in zip(still.items(), shortened(list(still)), cycle(REFERENCE_DASHES)):
        at = thinned_modes(values.size, MODES)
        figure.add_scatter(
            x=at + first,
            y=drawable(values[at], log),
            mode="lines",
            name=short,
            legendrank=2000,
            line={"color": REFERENCE, "dash": dash, "width": 1.5},
            hovertemplate=_hover(name, x),
        )
    kept = {name: thinned_modes(values.shape[1], MODES) for name, values in series.items()}
    for (name, values), short, colour in zip(
        series.items(), shortened(list(series)), series_colours(len(series)), strict=True
    ):
        at = kept[name]
        figure.add_scatter(
            x=at + first,
            y=drawable(values[-1][at], log),
            mode="lines+markers",
            name=short,
            line={"color": colour, "width": 1.5},
            marker={"size": 4, "color": colour},
            hovertemplate=_hover(name, x),
        )
    figure.update_xaxes(type="log" if log_x else "linear", minorloglabels="none", exponentformat="none")
    figure.update_yaxes(range=_range(series, still, log, range_y))
    if log:
        figure.update_yaxes(type="log", **POWERS)
    if share:
        figure.update_yaxes(tickformat=".0%")
    if gaps is not None:
        figure.update_layout(_cliffs(gaps.get(len(steps) - 1, ()), log_x, first))
    longest = max((values.shape[0] for values in series.values()), default=0)
    if longest < 2:
        return figure
    positions = slider_positions(len(steps), sum(at.size for at in kept.values()))

    def frame(i: int) -> list[dict[str, Any]]:
        return [{"type": "scatter", "y": drawable(values[i][kept[name]], log)} for name, values in series.items()]

    traces = range(len(still), len(still) + len(series))
    cliffs = (lambda i: _cliffs(gaps.get(i, ()), log_x, first)) if gaps is not None else None
    return with_frames(figure, steps, positions, frame, traces=list(traces), layout=cliffs)


def _hover(name: str, x: str) -> str:
    safe = str(name).replace("<", "&lt;")
    return f"<b>{safe}</b><br>{x} %{{x:,}}<br>%{{y:.4g}}<extra></extra>"


def _range(
    series: Mapping[str, np.ndarray], still: Mapping[str, np.ndarray], log: bool, wanted: tuple[float, float] | None
) -> list[float] | None:
    """One range for all steps, so that what moves is the spectrum and not the axis; at most twelve decades."""
    if wanted is not None:
        return [float(np.log10(w)) for w in wanted] if log else list(wanted)
    parts = [values[np.isfinite(values)].ravel() for values in (*series.values(), *still.values())]
    values = np.concatenate(parts) if parts else np.zeros(0)
    values = values[values > 0] if log else values
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    if log:
        low = max(low, high * 1e-12)
        return [float(np.log10(low)) - 0.15, float(np.log10(high)) + 0.15]
    room = 0.05 * (high - low or 1.0)
    return [low - room, high + room]


def _cliffs(counts: Sequence[int], log_x: bool, first: int) -> dict[str, Any]:
    """A vertical line after each detected cliff, with the number of modes above it."""
    shapes, notes = [], []
    for count in counts:
        between = count + first - 0.5
        shapes.append(
            {
                "type": "line",
                "x0": between,
                "x1": between,
                "y0": 0,
                "y1": 1,
                "yref": "y domain",
                "layer": "below",
                "line": {"color": REFERENCE, "width": 1, "dash": "dot"},
            }
        )
        notes.append(
            {
                "x": float(np.log10(between)) if log_x else between,
                "y": 1,
                "yref": "y domain",
                "text": f"{count}",
                "showarrow": False,
                "xanchor": "center",
                "yanchor": "bottom",
                "font": {"size": 11, "color": REFERENCE},
            }
        )
    return {"shapes": shapes, "annotations": notes}
