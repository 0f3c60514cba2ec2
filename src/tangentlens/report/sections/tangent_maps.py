"""Maps of the tangent section: blocks against families, and modes against single features."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.blocks import block_names
from tangentlens.report.figures.maps import COLUMNS, ROWS, step_map
from tangentlens.report.labelled import names_along, reference, steps_of, variable
from tangentlens.report.section import Panel
from tangentlens.report.sections.facets import Trees, per_run, run_table
from tangentlens.report.words import percent


def overlap_map_panel(trees: Trees) -> Panel | None:
    """Blocks by families, with the table of each cell beside its chance level and its permutation null."""

    def figure(tree: xr.DataTree) -> go.Figure | None:
        values = variable(tree, "tangent/overlap")
        if values is None or not {"block", "family"} <= set(values.dims):
            return None
        values = values.transpose("step", "family", "block")
        values = values.isel(block=slice(_blocks_seen(values)))
        return step_map(
            values,
            steps_of(values),
            names_along(values, "family"),
            [f"block {i + 1}" for i in range(values.sizes["block"])],
            x="",
            y="",
            colour="share of the family",
            high=1.0,
            share=True,
            height=120 + 34 * values.sizes["family"],
        )

    figures = per_run(trees, figure)
    if not figures:
        return None
    columns = ("run", "block", "modes", "family", "overlap", "chance", "null, 95 %")
    rows = [(run, *row) for run in figures for row in _overlap_rows(trees[run])]
    return Panel(
        "blocks",
        "Which block carries which family?",
        figures,
        "A bright cell is a family whose space lies in that block. Blocks are counted from the strongest modes down.",
        "A wide block holds much of everything: the table puts chance, and where it was recorded the permutation null, "
        "beside each cell.",
        "Chance is the block's number of modes over the number of examples; cells below it are empty of that family.",
        run_table(trees, columns, rows, "At the last recorded step."),
    )


def _blocks_seen(values: xr.DataArray) -> int:
    """The record keeps room for more blocks than a spectrum may have."""
    seen = np.isfinite(np.asarray(values)).any(axis=(0, 1))
    return int(np.flatnonzero(seen)[-1]) + 1


def _overlap_rows(tree: xr.DataTree) -> list[tuple[object, ...]]:
    overlap = variable(tree, "tangent/overlap")
    assert overlap is not None  # a figure was drawn from it
    chance, null = reference(tree, "tangent/overlap", "chance"), reference(tree, "tangent/overlap", "null_high")
    names = block_names(tree)
    rows: list[tuple[object, ...]] = []
    for b in range(overlap.sizes["block"]):
        for f, family in enumerate(names_along(overlap, "family")):
            value = float(overlap.isel(step=-1, block=b, family=f))
            if np.isfinite(value):
                levels = (_cell(chance, b, f), _cell(null, b, f))
                modes = names[b] if b < len(names) else "–"
                rows.append((b + 1, modes, family, *map(percent, (value, *levels))))
    return rows


def _cell(level: xr.DataArray | None, block: int, family: int) -> float | None:
    if level is None:
        return None
    where = {dim: at for dim, at in (("step", -1), ("block", block), ("family", family)) if dim in level.dims}
    return float(level.isel(where))


def mode_feature_panel(trees: Trees) -> Panel | None:
    """Modes by single features, rows grouped by family."""

    def figure(tree: xr.DataTree) -> go.Figure | None:
        values = variable(tree, "tangent/mode_feature")
        if values is None or not {"mode", "feature"} <= set(values.dims):
            return None
        values = values.transpose("step", "feature", "mode")
        return step_map(
            values,
            steps_of(values),
            _feature_names(values),
            list(range(1, values.sizes["mode"] + 1)),
            x="mode",
            y="feature",
            colour="projection",
            high=1.0,
            height=min(680, 130 + 9 * values.sizes["feature"]),
        )

    figures = per_run(trees, figure)
    if not figures:
        return None
    rows, notes = [], []
    for run in figures:
        values = variable(trees[run], "tangent/mode_feature")
        assert values is not None  # a figure was drawn from it
        rows += [(run, *row) for row in _strongest(values)]
        if values.sizes["mode"] > COLUMNS or values.sizes["feature"] > ROWS:
            notes.append(f"The map shows the first {COLUMNS} modes and {ROWS} features; the record holds them all.")
    return Panel(
        "modes",
        "What is each mode made of?",
        figures,
        "A row is one feature, a column one mode. A bright diagonal: each mode is one feature. A bright rectangle: "
        "the block spans these features, in no particular order.",
        "Inside a block of equal eigenvalues modes are free to rotate, so single columns carry no meaning there. "
        "Values are not normalised by column: a weak map stays weak.",
        "A random mode projects on a feature of d dimensions with about √(d / examples).",
        run_table(trees, ("run", "feature", "strongest mode", "projection"), rows, "At the last step."),
        notes=tuple(dict.fromkeys(notes)),
    )


def _feature_names(values: xr.DataArray) -> list[str]:
    names = names_along(values, "feature")
    if "feature_family" not in values.coords:
        return names
    families = [str(family) for family in values["feature_family"].values]
    return [name if family in name else f"{family} {name}" for name, family in zip(names, families, strict=True)]


def _strongest(values: xr.DataArray) -> list[tuple[object, ...]]:
    final = values.transpose("step", "feature", "mode").values[-1]
    final = np.where(np.isfinite(final), final, -np.inf)
    best = final.argmax(axis=1)
    order = np.argsort(-final.max(axis=1))[:10]
    names = _feature_names(values)
    return [(names[i], int(best[i]) + 1, float(final[i, best[i]])) for i in order if np.isfinite(final[i, best[i]])]
