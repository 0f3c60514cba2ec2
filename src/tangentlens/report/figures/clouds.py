"""Named points, moving through the recorded steps: one dot a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tangentlens.report.figures.steps import slider_positions, with_frames
from tangentlens.report.figures.style import REFERENCE, blank, series_colours

POINTS = 1200  # dots a cloud shows at most


def cloud(
    across: Any,
    up: Any,
    steps: Sequence[int],
    names: Sequence[Any],
    *,
    x: str,
    y: str,
    groups: Mapping[str, Sequence[int]] | None = None,
    diagonal: bool = False,
    middle: float = 0.0,
    counts: Sequence[Any] | None = None,
    height: int = 420,
) -> go.Figure:
    """Dots at (across, up), values (step, dot) or (dot,) for what does not move; hover says each dot's name.

    `groups` puts dots into named colours; `diagonal` draws the line on which both sides agree, otherwise `middle` is
    where across says nothing; `counts` are said when hovering.
    """
    up = np.asarray(up, dtype=np.float32)
    across = np.broadcast_to(np.asarray(across, dtype=np.float32), up.shape)
    parts = {name: np.asarray(members, dtype=int) for name, members in (groups or {"": range(up.shape[1])}).items()}
    figure = blank(x=x, y=y, height=height)
    still = _draw_references(figure, across, up, diagonal, middle)
    seen = "" if counts is None else "<br>seen %{customdata:,} times"
    symbols = ("circle", "diamond", "square", "triangle-up", "x", "cross")
    for order, ((group, members), colour) in enumerate(zip(parts.items(), series_colours(len(parts)), strict=True)):
        figure.add_scatter(
            x=across[-1][members],
            y=up[-1][members],
            mode="markers",
            name=group,
            showlegend=len(parts) > 1,
            text=[str(names[i]).replace("<", "&lt;") for i in members],
            marker={"size": 7, "color": colour, "opacity": 0.75, "symbol": symbols[order % len(symbols)]},
            customdata=None if counts is None else [counts[i] for i in members],
            hovertemplate=f"<b>%{{text}}</b><br>{x} %{{x:.4g}}<br>{y} %{{y:.4g}}{seen}<extra>{group}</extra>",
        )
    for side, values in (("xaxis", across), ("yaxis", up)):
        figure.update_layout({side: {"range": _room(values)}})
    if len(up) < 2:
        return figure

    def frame(i: int) -> list[dict[str, Any]]:
        return [{"type": "scatter", "x": across[i][m], "y": up[i][m]} for m in parts.values()]

    positions = slider_positions(len(steps), 2 * up.shape[1])
    return with_frames(figure, steps, positions, frame, traces=list(range(still, still + len(parts))))


def _draw_references(figure: go.Figure, across: np.ndarray, up: np.ndarray, diagonal: bool, middle: float) -> int:
    """The lines of no effect, and of agreement; says how many traces they take."""
    line = {"color": REFERENCE, "dash": "dash", "width": 1}
    figure.add_hline(y=0, line=line, layer="below")
    if not diagonal:
        figure.add_vline(x=middle, line=line, layer="below")
        return 0
    ends = _room(np.concatenate([across.ravel(), up.ravel()]))
    figure.add_scatter(x=ends, y=ends, mode="lines", line=line, name="agreement", hoverinfo="skip")
    return 1


def _room(values: np.ndarray) -> list[float]:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = 0.06 * (high - low or 1.0)
    return [low - room, high + room]
