"""Matrices as colour-blind-safe maps, moving through the recorded steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from tangentlens.report.figures.steps import slider_positions, with_frames
from tangentlens.report.figures.style import MAP, blank
from tangentlens.report.words import shortened

ROWS, COLUMNS = 80, 200  # cells a map shows at most along each side


def step_map(
    values: Any,
    steps: Sequence[int],
    rows: Sequence[Any],
    columns: Sequence[Any],
    *,
    x: str,
    y: str,
    colour: str,
    low: float | None = 0.0,
    high: float | None = None,
    share: bool = False,
    height: int | None = None,
) -> go.Figure:
    """One map a step, values (step, row, column), all on one colour scale; the last step is shown first."""
    values = np.asarray(values, dtype=np.float32)[:, :ROWS, :COLUMNS]
    names = shortened([str(row) for row in rows][:ROWS])
    finite = values[np.isfinite(values)]
    low = (float(finite.min()) if finite.size else 0.0) if low is None else low
    high = (float(finite.max()) if finite.size else 1.0) if high is None else high
    figure = blank(x=x, y=y, height=height or int(min(640, max(160, 110 + 20 * values.shape[1]))))
    figure.add_heatmap(
        z=values[-1],
        x=list(columns)[:COLUMNS],
        y=names,
        colorscale=MAP,
        zmin=low,
        zmax=high if high > low else low + 1,
        colorbar={
            "title": {"text": colour, "side": "right", "font": {"size": 13}},
            "thickness": 12,
            "outlinewidth": 0,
            "len": 1.0,
            "tickformat": ".0%" if share else None,
        },
        hovertemplate=f"{y} %{{y}}<br>{x} %{{x}}<br>{colour} %{{z:{'.1%' if share else '.4g'}}}<extra></extra>",
        hoverongaps=False,
        xgap=int(values.shape[2] <= 12),
        ygap=int(values.shape[1] <= 12),
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, title_text=y)
    figure.update_xaxes(showgrid=False)
    if len(values) < 2:
        return figure
    positions = slider_positions(len(steps), values[0].size)
    return with_frames(figure, steps, positions, lambda i: [{"type": "heatmap", "z": values[i]}], traces=[0])
