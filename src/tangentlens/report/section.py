"""What a page is made of: sections of panels, each panel one figure with all that a newcomer needs to read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go


@dataclass(frozen=True)
class Table:
    """The numbers under a figure; cells are text or numbers, a missing number is NaN or None."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """One question with its answer drawn, and the way to read it.

    `figures` holds one figure per run (or one in which the runs are laid over each other); `null` says in words what
    the grey reference in the figure is; `finding` is one sentence of recorded numbers, a line a run.
    """

    name: str
    title: str
    figures: Mapping[str, go.Figure]
    reading: str
    misleads: str
    null: str
    table: Table
    finding: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """One instrument: what it asks, its panels, and what it would show had it been recorded."""

    name: str
    title: str
    question: str
    panels: tuple[Panel, ...]
    absent: tuple[str, ...] = field(default=())
