"""One figure per run on common axes, and the tables under them: what every section builds its panels from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.curves import Null, curves
from tangentlens.report.figures.steps import thinned
from tangentlens.report.labelled import (
    IN_WORDS,
    axis_label,
    last,
    names_along,
    recorded_steps,
    reference,
    steps_of,
    variable,
)
from tangentlens.report.section import Panel, Table
from tangentlens.report.words import percent

Trees = Mapping[str, xr.DataTree]
Lines = dict[str, xr.DataArray]
ROWS = 8  # steps a table shows
SPARED = 4  # so many rows more are shown than dropped


def per_run(trees: Trees, draw: Callable[[xr.DataTree], go.Figure | None]) -> dict[str, go.Figure]:
    """One figure per run that has something to draw, all on the same axes so that they can be compared by eye."""
    drawn = {name: figure for name, tree in trees.items() if (figure := draw(tree)) is not None}
    return on_one_scale(drawn)


def on_one_scale(figures: dict[str, go.Figure]) -> dict[str, go.Figure]:
    """Give figures of the same kind common ranges: colours of maps, and both axes of lines."""
    maps = [trace for figure in figures.values() for trace in figure.data if trace.type == "heatmap"]
    if len(figures) < 2:
        return figures
    if maps:
        low, high = min(trace.zmin for trace in maps), max(trace.zmax for trace in maps)
        for trace in maps:
            trace.update(zmin=low, zmax=high)
        return figures
    for side in ("x", "y"):
        if all(figure.layout[f"{side}axis"].range is None for figure in figures.values()):
            _one_range(figures, side)
    return figures


def _one_range(figures: dict[str, go.Figure], side: str) -> None:
    log = any(figure.layout[f"{side}axis"].type == "log" for figure in figures.values())
    parts = [np.asarray(trace[side], dtype=float) for figure in figures.values() for trace in figure.data]
    values = np.concatenate([part[np.isfinite(part)] for part in parts]) if parts else np.zeros(0)
    values = np.log10(values[values > 0]) if log else values
    if not values.size:
        return
    low, high = float(values.min()), float(values.max())
    room = (0.02 if side == "x" else 0.06) * (high - low or 1.0)
    for figure in figures.values():
        if log == (figure.layout[f"{side}axis"].type == "log"):
            figure.update_layout({f"{side}axis": {"range": [low - room, high + room]}})


def share_range(trees: Trees, *paths: str) -> tuple[float, float]:
    """A range for values between 0 and 1: all of it, or the end of it in which every run's values lie.

    A line that hugs the edge of the whole interval shows nothing; runs keep one range, to be compared by eye.
    """
    found = [variable(tree, path) for tree in trees.values() for path in paths]
    values = np.concatenate([np.asarray(one, dtype=float).ravel() for one in found if one is not None] or [np.zeros(1)])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    bottom = next((end for end in (0.9, 0.8, 0.5) if low > end), 0.0)
    top = next((end for end in (0.05, 0.1, 0.2, 0.5) if high < end), 1.0)
    room = 0.03 * (top - bottom)
    return bottom - room, top + room


def layer_lines(values: xr.DataArray | None, dim: str = "layer") -> Lines:
    """A (step, layer) variable as one line a layer."""
    if values is None or dim not in values.dims:
        return {}
    return {name: values.isel({dim: i}) for i, name in enumerate(names_along(values, dim))}


def nulls_of(tree: xr.DataTree, path: str, words: Mapping[str, str] | None = None) -> list[Null]:
    """The reference levels a variable names, ready to be drawn."""
    found = []
    for role, said in (words or IN_WORDS).items():
        level = reference(tree, path, role)
        if level is not None and level.ndim == 1:
            found.append(Null(said, level))
    low, high = reference(tree, path, "null_low"), reference(tree, path, "null_high")
    if low is not None and high is not None and low.ndim == high.ndim == 1:
        found.append(Null("range of the null", None, low, high))
    return found


def lines_panel(
    trees: Trees,
    draw: Callable[[xr.DataTree], tuple[Lines, dict[str, Any]]],
    *,
    name: str,
    title: str,
    reading: str,
    misleads: str,
    null: str,
    finding: Callable[[xr.DataTree], str] | None = None,
    notes: Sequence[str] = (),
) -> Panel | None:
    """A panel of lines over steps; `draw` gives a run's lines and how `curves` is to draw them."""
    recorded = {run: lines for run, tree in trees.items() if (lines := draw(tree)[0])}
    if not recorded:
        return None

    def figure(tree: xr.DataTree) -> go.Figure | None:
        lines, options = draw(tree)
        return curves(lines, **{"steps": recorded_steps(tree), **options}) if lines else None

    return Panel(
        name,
        title,
        per_run(trees, figure),
        reading,
        misleads,
        null,
        step_table(recorded, share=any(draw(tree)[1].get("share", False) for tree in trees.values())),
        said(trees, finding),
        (*notes, *_seldom(trees, recorded)),
    )


def _seldom(trees: Trees, recorded: Mapping[str, Lines]) -> list[str]:
    """Lines through a few of the recorded steps look like trends: said where most were left out."""
    found = []
    for run, lines in recorded.items():
        steps, measured = recorded_steps(trees[run]), {step for line in lines.values() for step in steps_of(line)}
        if 2 * len(measured) < len(steps):
            count = f"{len(measured):,} of {len(steps):,} recorded steps"
            found.append(named(trees, run, f"measured at {count}; at the others it was not due, or beyond the budget."))
    return [f"{text[0].upper()}{text[1:]}" for text in found]


def said(trees: Trees, finding: Callable[[xr.DataTree], str] | None) -> str:
    """The finding of each run, named when there are several."""
    if finding is None:
        return ""
    found = {run: text for run, tree in trees.items() if (text := finding(tree))}
    if len(trees) == 1:
        return next(iter(found.values()), "")
    return "\n".join(f"{run}: {text}" for run, text in found.items())


def named(trees: Trees, run: str, what: str) -> str:
    """The name of a figure: of its run too when there are several."""
    return f"{run}: {what}" if len(trees) > 1 else what


def run_table(trees: Trees, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]], note: str = "") -> Table:
    """A table whose first column is the run, which goes without saying when there is one run."""
    first = 0 if len(trees) > 1 else 1
    return Table(columns[first:], tuple(row[first:] for row in rows), note)


def step_table(recorded: Mapping[str, Lines], *, share: bool = False) -> Table:
    """Lines as a table, in per cent if `share`: a row a step when there are few lines, a row a line when many."""
    shown = percent if share else lambda value: value
    many_runs = len(recorded) > 1
    names = list(dict.fromkeys(name for lines in recorded.values() for name in lines))
    if len(names) > 6:
        return _row_per_line(recorded, many_runs, shown)
    rows: list[tuple[Any, ...]] = []
    shortened = False
    for run, lines in recorded.items():
        steps = sorted({step for line in lines.values() for step in steps_of(line)})
        most = ROWS if not many_runs else max(3, ROWS // len(recorded))
        keep = thinned(len(steps), len(steps) if len(steps) <= most + SPARED else most)
        shortened = shortened or len(keep) < len(steps)
        for step in (steps[i] for i in keep):
            cells = [shown(_at(lines[name], step)) if name in lines else None for name in names]
            rows.append((*([run] if many_runs else []), step, *cells))
    note = "A few of the recorded steps, the first and the last among them." if shortened else ""
    return Table((*(["run"] if many_runs else []), "step", *names), tuple(rows), note)


def _row_per_line(recorded: Mapping[str, Lines], many_runs: bool, shown: Callable[[Any], Any]) -> Table:
    rows = []
    for run, lines in recorded.items():
        for name, line in lines.items():
            values = np.asarray(line, dtype=float)
            finite = values[np.isfinite(values)]
            ends = (finite[0], finite[-1], finite.min(), finite.max()) if finite.size else (None,) * 4
            rows.append((*([run] if many_runs else []), name, *map(shown, ends)))
    return Table((*(["run"] if many_runs else []), "name", "first", "last", "smallest", "largest"), tuple(rows))


def _at(line: xr.DataArray, step: int) -> float | None:
    found = np.flatnonzero(line["step"].values == step)
    return float(line.values[found[0]]) if found.size else None


def scalar_lines(tree: xr.DataTree, paths: Mapping[str, str]) -> Lines:
    """Recorded (step,) variables under the names they are shown by: {shown name: path}."""
    found = {shown: variable(tree, path) for shown, path in paths.items()}
    return {shown: values for shown, values in found.items() if values is not None and values.ndim == 1}


def label_of(tree: xr.DataTree, path: str, otherwise: str) -> str:
    values = variable(tree, path)
    return otherwise if values is None else axis_label(values, otherwise)


def last_of(tree: xr.DataTree, path: str) -> float:
    return last(variable(tree, path))
