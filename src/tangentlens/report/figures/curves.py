"""Lines over training steps, with the null as a grey line or band."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.steps import StepAxis, say_left_out, step_axis, thinned
from tangentlens.report.figures.style import (
    BAND,
    POWERS,
    REFERENCE,
    REFERENCE_DASHES,
    blank,
    drawable,
    faded,
    series_colours,
    series_dashes,
)
from tangentlens.report.words import number, shortened

POINTS = 1200  # steps a line holds at most
MOST_POWERS = 8  # ticks of a logarithm that stay apart in a low figure
NAMED = 10  # lines a legend names; beyond, they are coloured by their order and named when hovered


@dataclass(frozen=True)
class Null:
    """What lines are read against: a level (one number, or one a step), a band from low to high, or both."""

    name: str
    level: xr.DataArray | float | None = None
    low: xr.DataArray | None = None
    high: xr.DataArray | None = None


def curves(
    lines: Mapping[str, xr.DataArray],
    *,
    y: str,
    nulls: Sequence[Null] = (),
    marks: Mapping[str, int] | None = None,
    intervals: Mapping[str, tuple[xr.DataArray, xr.DataArray]] | None = None,
    ordered: bool = False,
    share: bool = False,
    log: bool = False,
    range_y: tuple[float, float] | None = None,
    height: int = 360,
    steps: Sequence[int] = (),
) -> go.Figure:
    """Named lines over their own steps, with intervals of the values in their colour and references in grey.

    `marks` are named steps drawn as vertical lines; `ordered` colours lines by depth; `share` prints per cent; `steps`
    are all of the record's, so that a line through a few of them lies on the same axis as the others.
    """
    axis = step_axis(sorted({*steps, *(int(step) for line in lines.values() for step in line["step"].values)}))
    figure = blank(x="step", y=y, height=height)
    figure.update_xaxes(**axis.layout)
    figure.update_layout(meta=axis.meta())
    longest = max(line.sizes["step"] for line in lines.values())
    if longest > POINTS:
        say_left_out(figure, f"Lines are drawn through {POINTS:,} of {longest:,} recorded steps.")
    for order, null in enumerate(nulls):
        _draw_null(figure, null, axis, share, REFERENCE_DASHES[order % len(REFERENCE_DASHES)])
    ordered = ordered or len(lines) > NAMED
    room = 28 if len(lines) > 3 else 40
    looks = zip(series_colours(len(lines), ordered=ordered), series_dashes(len(lines), ordered=ordered), strict=True)
    for (name, line), short, (colour, dash) in zip(lines.items(), shortened(list(lines), room), looks, strict=True):
        if intervals and name in intervals:
            _draw_band(figure, *intervals[name], axis, faded(colour), f"{short}, interval")
        at, values = _kept(line)
        figure.add_scatter(
            x=axis.places(at),
            y=drawable(values, log),
            name=short,
            mode="lines+markers" if len(at) <= 60 else "lines",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"size": 5, "color": colour},
            customdata=at,
            showlegend=len(lines) <= NAMED,
            hovertemplate=_hover(name, share),
            connectgaps=False,
        )
    if share:
        figure.update_yaxes(tickformat=".0%")
    if log:
        figure.update_yaxes(type="log", **_log_ticks([*lines.values(), *(null.level for null in nulls)]))
    if range_y is not None:
        figure.update_yaxes(range=[float(np.log10(end)) for end in range_y] if log else list(range_y))
    _draw_marks(figure, marks or {}, axis)
    return figure


def _log_ticks(levels: Iterable[Any]) -> dict[str, Any]:
    """Where values span few powers of ten, ticks between them, all in one size: plotly prints those in a small one."""
    values = np.concatenate([np.asarray(level, dtype=float).ravel() for level in levels if level is not None])
    values = values[np.isfinite(values) & (values > 0)]
    decades = float(np.log10(values.max() / values.min())) if values.size else 0.0
    if decades >= 1.5:  # the first of many decades is often round-off: their powers must not run into each other
        return POWERS | {"dtick": max(1, int(np.ceil(decades / MOST_POWERS)))}
    between = (1, 2, 5) if decades > 0.5 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    first, last = (int(np.floor(np.log10(end))) for end in (values.min(), values.max())) if values.size else (0, 0)
    ticks = [float(f"{part}e{exponent}") for exponent in range(first, last + 1) for part in between]
    return {"tickvals": ticks, "ticktext": [number(tick) for tick in ticks]}


def _kept(line: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    keep = thinned(line.sizes["step"], POINTS)
    return line["step"].values[keep].astype(int), line.values[keep].astype(np.float32)


def _hover(name: str, share: bool) -> str:
    safe = str(name).replace("<", "&lt;")
    return f"<b>{safe}</b><br>step %{{customdata:,}}<br>%{{y:{'.1%' if share else '.4g'}}}<extra></extra>"


def _draw_null(figure: go.Figure, null: Null, axis: StepAxis, share: bool, dash: str) -> None:
    if null.low is not None and null.high is not None:
        _draw_band(figure, null.low, null.high, axis, BAND, null.name, named=null.level is None)
    if null.level is None:
        return
    if isinstance(null.level, xr.DataArray):
        steps, values = _kept(null.level)
    else:
        steps = np.asarray(axis.steps)[[0, -1]]
        values = np.full(2, null.level, np.float32)
    figure.add_scatter(
        x=axis.places(steps),
        y=values,
        name=null.name,
        mode="lines",
        customdata=steps,
        legendrank=2000,
        line={"color": REFERENCE, "dash": dash, "width": 1.5},
        hovertemplate=_hover(null.name, share),
    )


def _draw_band(
    figure: go.Figure,
    low: xr.DataArray,
    high: xr.DataArray,
    axis: StepAxis,
    colour: str,
    name: str,
    named: bool = False,
) -> None:
    steps, below = _kept(low)
    _, above = _kept(high)
    sound = np.isfinite(below) & np.isfinite(above)
    places = axis.places(steps)[sound]
    figure.add_scatter(
        x=np.concatenate([places, places[::-1]]),
        y=np.concatenate([below[sound], above[sound][::-1]]),
        fill="toself",
        fillcolor=colour,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        name=name,
        showlegend=named,
        legendrank=2001,
    )


def _draw_marks(figure: go.Figure, marks: Mapping[str, int], axis: StepAxis) -> None:
    for order, (name, step) in enumerate(marks.items()):
        place = float(axis.places([step])[0])
        figure.add_shape(
            type="line",
            x0=place,
            x1=place,
            y0=0,
            y1=1,
            yref="y domain",
            layer="below",
            line={"color": REFERENCE, "width": 1, "dash": "dot"},
        )
        figure.add_annotation(
            x=float(np.log10(place)) if axis.log else place,
            y=1,
            yref="y domain",
            text=name,
            showarrow=False,
            xanchor="left" if order % 2 else "right",
            yanchor="bottom",
            font={"size": 11, "color": REFERENCE},
        )
