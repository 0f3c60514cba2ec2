"""Groups this page has no section for: a user's own measures, drawn from their labels alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.maps import step_map
from tangentlens.report.labelled import axis_label, bounds, names_along, steps_of, variable
from tangentlens.report.section import Panel, Section, Table
from tangentlens.report.sections.facets import Trees, layer_lines, lines_panel, nulls_of, per_run
from tangentlens.report.words import is_number

LINES = 40  # lines of a two-dimensional variable; a longer one is a map


def section_of(group: str, trees: Trees) -> Section | None:
    """One panel for each variable of the group, by its dimensions: lines over steps, or a map that moves."""
    names = sorted({str(name) for tree in trees.values() if group in tree.children for name in tree[group].data_vars})
    panels = [panel for name in names if (panel := _panel(trees, f"{group}/{name}", name))]
    question = "What do the measures added to this run say?"
    title = group.replace("_", " ").capitalize()
    return Section(group, title, question, tuple(panels), _not_shown(group, names, trees)) if panels else None


def _not_shown(group: str, names: list[str], trees: Trees) -> tuple[str, ...]:
    """What the record holds in this group and a page has no figure for."""
    found = [variable(tree, f"{group}/{name}") for tree in trees.values() for name in names]
    many = {str(values.name): values.dims for values in found if values is not None and values.ndim > 3}
    inner = {str(child) for tree in trees.values() if group in tree.children for child in tree[group].children}
    said = [f"{name} ({', '.join(map(str, dims))}) has too many axes for a figure." for name, dims in many.items()]
    return tuple(said + [f"The subgroup {group}/{child} is in the record only." for child in sorted(inner)])


def _panel(trees: Trees, path: str, name: str) -> Panel | None:
    values = next((found for tree in trees.values() if (found := variable(tree, path)) is not None), None)
    if values is None or any(path.endswith(f"/{level}") for level in _references(trees, path)):
        return None
    shape = values.shape[1:]
    if len(shape) == 0 or (len(shape) == 1 and shape[0] <= LINES):
        return _lines(trees, path, name, values)
    return _map(trees, path, name, values) if len(shape) <= 2 else None


def _references(trees: Trees, path: str) -> set[str]:
    """Variables that are only another variable's level: they are drawn with it."""
    group = path.partition("/")[0]
    roles = ("null", "null_low", "null_high", "chance", "initial", "low", "high")
    return {
        str(values.attrs[role])
        for tree in trees.values()
        if group in tree.children
        for values in tree[group].dataset.data_vars.values()
        for role in roles
        if role in values.attrs
    }


def _words(values: xr.DataArray, name: str) -> dict[str, Any]:
    return {
        "title": str(values.attrs.get("question") or axis_label(values, name.replace("_", " "))),
        "reading": str(values.attrs.get("reading") or "As the measure defines it."),
        "misleads": str(values.attrs.get("misleads") or "Nothing was recorded about its limits."),
    }


def _lines(trees: Trees, path: str, name: str, values: xr.DataArray) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[dict[str, xr.DataArray], dict[str, Any]]:
        found = variable(tree, path)
        if found is None:
            return {}, {}
        lines = {name: found} if found.ndim == 1 else layer_lines(found, str(found.dims[1]))
        options = {"y": axis_label(found, name), "nulls": nulls_of(tree, path), "range_y": bounds(found)}
        return lines, {**options, "log": found.attrs.get("scale") == "log" and bool((found > 0).any())}

    named = any(nulls_of(tree, path) for tree in trees.values())
    null = "Grey dashed: the level recorded with it." if named else "No null was recorded for this measure."
    return lines_panel(trees, draw, name=name, null=null, **_words(values, name))


def _map(trees: Trees, path: str, name: str, values: xr.DataArray) -> Panel | None:
    def figure(tree: xr.DataTree) -> go.Figure | None:
        found = variable(tree, path)
        if found is None:
            return None
        found = found.expand_dims("row", 1) if found.ndim == 2 else found
        rows, columns = str(found.dims[1]), str(found.dims[2])
        return step_map(
            found.values,
            steps_of(found),
            names_along(found, rows),
            names_along(found, columns),
            x=columns,
            y="" if rows == "row" else rows,
            colour=axis_label(found, name),
            low=None,
        )

    figures = per_run(trees, figure)
    rows = []
    for run in figures:
        final = np.asarray(variable(trees[run], path), dtype=float)[-1]
        finite = final[np.isfinite(final)]
        rows.append(
            (
                run,
                *(float(part) if is_number(part) else None for part in (finite.min(), np.median(finite), finite.max())),
            )
        )
    table = Table(("run", "smallest", "median", "largest"), tuple(rows), "At the last step it was measured.")
    return Panel(
        name, figures=figures, null="No null was recorded for this measure.", table=table, **_words(values, name)
    )
