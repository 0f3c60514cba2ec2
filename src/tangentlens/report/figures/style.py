"""How every figure looks: one restrained template, Okabe-Ito lines, cividis maps, grey for what is only a reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

# Okabe & Ito's palette, the colours that stay apart for colour-blind readers on white; yellow is left out (too pale).
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot", "dashdot")
REFERENCE = "#8A8F98"  # nulls, chance levels, the initial network: always this grey, always dashed or a band
REFERENCE_DASHES = ("dash", "dot", "dashdot", "longdash")  # several references in one figure stay apart without colour
BAND = "rgba(138,143,152,0.20)"
MAP = "Cividis"
DIVERGING = ((0.0, "#00568A"), (0.25, "#7FB2D3"), (0.5, "#F7F6F2"), (0.75, "#E9A07A"), (1.0, "#A94400"))
DEPTH = ("#00224E", "#2A3F6D", "#575C6D", "#7D7C78", "#A59C74", "#D2C060")  # cividis, without its palest end

# plotly prints powers of ten a quarter larger than it is told
POWERS = {"dtick": 1, "minorloglabels": "none", "exponentformat": "power", "tickfont": {"size": 10.4}}

FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_AXIS = {
    "showgrid": True,
    "gridcolor": "#E7E5DF",
    "gridwidth": 1,
    "zeroline": False,
    "showline": True,
    "linecolor": "#B9B6AE",
    "ticks": "outside",
    "ticklen": 4,
    "tickcolor": "#B9B6AE",
    "automargin": True,
    "title": {"standoff": 10, "font": {"size": 13}},
    "exponentformat": "power",
}

TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": "#22262B"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "colorway": list(LINES),
        "margin": {"l": 64, "r": 20, "t": 26, "b": 52},
        "hovermode": "closest",
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": REFERENCE, "activecolor": "#00568A"},
        "legend": {"orientation": "h", "x": 0, "y": 1.07, "xanchor": "left", "yanchor": "bottom", "font": {"size": 12}},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "colorscale": {"sequential": "Cividis"},
    }
)


def blank(*, x: str, y: str, height: int = 360, **layout: Any) -> go.Figure:
    """An empty figure with its axes named."""
    figure = go.Figure(layout={"template": TEMPLATE, "height": height, "uirevision": "keep", **layout})
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    return figure


def drawable(values: np.ndarray, log: bool) -> np.ndarray:
    """A logarithm has no place for zero or less (round-off at the tail of a spectrum): a gap in the line."""
    return np.where(values > 0, values, np.nan).astype(np.float32) if log else values


def series_colours(count: int, *, ordered: bool = False) -> list[str]:
    """One colour each: Okabe-Ito for kinds, a light-to-dark ramp for what has an order (layers by depth)."""
    if not ordered and count <= len(LINES) * len(DASHES):
        return [LINES[i % len(LINES)] for i in range(count)]
    if count <= 1:  # nothing to order
        return list(LINES[:count])
    from plotly.colors import sample_colorscale  # slow to import, wanted for many layers only

    return [str(colour) for colour in sample_colorscale(list(DEPTH), [i / (count - 1) for i in range(count)])]


def faded(colour: str) -> str:
    """The same colour, pale enough to lie under lines.

    >>> faded("#0072B2")
    'rgba(0,114,178,0.18)'
    """
    if not colour.startswith("#"):
        return BAND
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def series_dashes(count: int, *, ordered: bool = False) -> list[str]:
    """A second cue where colours come round again."""
    return ["solid"] * count if ordered else [DASHES[(i // len(LINES)) % len(DASHES)] for i in range(count)]
