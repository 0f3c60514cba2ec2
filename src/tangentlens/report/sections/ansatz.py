"""Do the weights look where the function is sensitive? The feature ansatz layer by layer, always beside its null."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.curves import Null, curves
from tangentlens.report.figures.maps import step_map
from tangentlens.report.labelled import last, names_along, reference, steps_of, variable
from tangentlens.report.section import Panel, Section
from tangentlens.report.sections.ansatz_matrices import alignment_panel, matrices_panel
from tangentlens.report.sections.facets import (
    Lines,
    Trees,
    layer_lines,
    lines_panel,
    named,
    on_one_scale,
    run_table,
    said,
    share_range,
)
from tangentlens.report.words import is_number, listed, number

KINDS = {"uncentred": "the weights (UC)", "centred": "their change (C)"}
LEVELS = ("", "_null", "_null_low", "_null_high")
LAYERS_APART = 8  # up to here each layer has a figure of its own; beyond, all are in the map


def present(tree: xr.DataTree) -> bool:
    return "ansatz" in tree.children and (len(tree["ansatz"].data_vars) > 0 or "layers" in tree["ansatz"].children)


def section(trees: Trees) -> Section:
    panels = [
        _correlations(trees),
        _adjusted(trees),
        matrices_panel(trees),
        alignment_panel(trees),
        _ratio(trees),
        _drift(trees),
    ]
    return Section(
        "ansatz",
        "Feature ansatz",
        "Does what each layer's weights look at (WᵀW) agree with what the function is sensitive to (the AGOP)?",
        tuple(panel for panel in panels if panel),
    )


def layers_of(tree: xr.DataTree) -> list[str]:
    found = [variable(tree, f"ansatz/{kind}") for kind in KINDS]
    return list(
        dict.fromkeys(
            name
            for values in found
            if values is not None and "layer" in values.dims
            for name in names_along(values, "layer")
        )
    )


def _correlations(trees: Trees) -> Panel | None:
    figures: dict[str, go.Figure] = {}
    range_y = share_range(trees, *(f"ansatz/{kind}{level}" for kind in KINDS for level in LEVELS))
    for run, tree in trees.items():
        for layer in layers_of(tree)[:LAYERS_APART]:
            figures[named(trees, run, f"layer {layer}")] = _one_layer(tree, layer, range_y)
    if not figures:
        return None
    rows = [(run, *row) for run, tree in trees.items() for row in correlation_rows(tree)]
    columns = ("run", "layer", "kind", "correlation", "null", "null, low", "null, high", "adjusted")
    many = max(len(layers_of(tree)) for tree in trees.values())
    return Panel(
        "correlations",
        "How well do weights and sensitivity agree?",
        figures,
        "Solid lines: correlation of WᵀW with the AGOP, for the weights as they are (UC) and for what training added "
        "to them (C). Only the part above the grey null is agreement.",
        "A few strong directions in the weights raise the correlation by themselves; that is what the null measures. "
        "C is undefined before the first change of the weights.",
        "Grey dashed: the mean value when the sensitivity's directions are replaced by random ones of the same "
        "strengths; the band holds nine in ten of them. Adjusted = (value − null) / (1 − null).",
        run_table(trees, columns, rows, "At the last recorded step."),
        said(trees, ansatz_finding),
        _notes(trees, many),
    )


def _notes(trees: Trees, many: int) -> tuple[str, ...]:
    notes = []
    if many > LAYERS_APART:
        notes.append(f"Figures for the first {LAYERS_APART} of {many} layers; the map below and the table hold all.")
    analytic = dict.fromkeys(
        row[0]
        for tree in trees.values()
        for row in correlation_rows(tree)
        if is_number(row[3]) and not is_number(row[5])
    )
    if analytic:
        notes.append(
            f"There is no band for {listed(analytic)}, as too few random bases were drawn; with none, the null is a "
            "closed form, which lies below chance where a few directions dominate. Being above it says nothing."
        )
    return tuple(notes)


def _one_layer(tree: xr.DataTree, layer: str, range_y: tuple[float, float]) -> go.Figure:
    lines: Lines = {}
    nulls: list[Null] = []
    for kind, shown in KINDS.items():
        line = of_layer(variable(tree, f"ansatz/{kind}"), layer)
        if line is None:
            continue
        lines[shown] = line
        level, low, high = (
            of_layer(reference(tree, f"ansatz/{kind}", role), layer) for role in ("null", "null_low", "null_high")
        )
        if level is not None or (low is not None and high is not None):
            nulls.append(Null(f"{shown.rpartition(' ')[2][1:-1]} by chance", level, low, high))
    return curves(lines, y="correlation", nulls=nulls, range_y=range_y, height=300)


def of_layer(values: xr.DataArray | None, layer: str) -> xr.DataArray | None:
    """One layer's line; None where that layer has no number."""
    if values is None or "layer" not in values.dims or layer not in (names := names_along(values, "layer")):
        return None
    line = values.isel(layer=names.index(layer))
    return line if np.isfinite(line).any() else None


def correlation_rows(tree: xr.DataTree) -> list[tuple[Any, ...]]:
    """Layer, kind, value, null, its band, adjusted: at the last step each was measured."""
    rows: dict[tuple[str, str], tuple[Any, ...]] = {}
    layers = layers_of(tree)
    for kind in KINDS:
        path = f"ansatz/{kind}"
        levels = [reference(tree, path, role) for role in ("null", "null_low", "null_high")]
        beside = [*levels, variable(tree, f"{path}_adjusted")]
        values = variable(tree, path)
        for layer in layers:
            line = of_layer(values, layer)
            if line is not None:
                rows[layer, kind] = (layer, kind, last(line), *(last(of_layer(level, layer)) for level in beside))
    return [rows[layer, kind] for layer in layers for kind in KINDS if (layer, kind) in rows]


def ansatz_finding(tree: xr.DataTree) -> str:
    """The layer whose change agrees best with the sensitivity, beyond a null that was sampled."""
    rows = [row for row in correlation_rows(tree) if row[1] == "centred" and is_number(row[6]) and is_number(row[5])]
    if not rows:
        return ""
    layer, _, value, null, _, _, adjusted = max(rows, key=lambda row: row[6])
    beside = f"{number(value)} against a null of {number(null)} (adjusted {number(adjusted)})"
    return f"Best centred agreement: layer {layer}, {beside}."


def _adjusted(trees: Trees) -> Panel | None:
    figures: dict[str, go.Figure] = {}
    table_rows: list[tuple[Any, ...]] = []
    for kind in KINDS:
        for run, tree in trees.items():
            values = variable(tree, f"ansatz/{kind}_adjusted")
            if values is None or "layer" not in values.dims:
                continue
            layers, steps = names_along(values, "layer"), steps_of(values)
            still = values.transpose("layer", "step").values[None]
            shown = step_map(
                still,
                [0],
                layers,
                [f"{step:,}" for step in steps],
                x="step",
                y="",
                colour="adjusted",
                low=0.0,
                high=1.0,
            )
            shown.update_xaxes(type="category", nticks=8)
            figures[named(trees, run, kind)] = shown
            table_rows += [(run, kind, *row) for row in zip(layers, values.values[0], values.values[-1], strict=True)]
    if not figures:
        return None
    return Panel(
        "adjusted",
        "Where and when does agreement rise above chance?",
        on_one_scale(figures),
        "A row is a layer, a column a recorded step: 0 is no better than the null, 1 is perfect agreement.",
        "Values below the null are drawn as 0; columns are recorded steps, not equal stretches of time.",
        "The null is subtracted: 0 (dark) is chance.",
        run_table(trees, ("run", "kind", "layer", "first step", "last step"), table_rows),
    )


def _per_layer(trees: Trees, path: str, **words: Any) -> Panel | None:
    options: dict[str, Any] = {key: words.pop(key) for key in ("y", "log", "range_y") if key in words}
    options["ordered"] = True
    return lines_panel(trees, lambda tree: (layer_lines(variable(tree, path)), options), **words)


def _ratio(trees: Trees) -> Panel | None:
    return _per_layer(
        trees,
        "ansatz/ratio",
        name="ratio",
        title="Has training replaced the initial weights?",
        y="C / UC, unnormalised",
        log=True,
        reading="Near 1: what the layer now is was made by training, so that the two correlations say the same. Near "
        "0: the initial weights still dominate.",
        misleads="It can exceed 1 when the change cancels initial weights.",
        null="0 is the untrained network, 1 a network whose initial weights no longer matter.",
    )


def _drift(trees: Trees) -> Panel | None:
    return _per_layer(
        trees,
        "ansatz/ptk_drift",
        name="drift",
        title="Does the sensitivity itself move?",
        y="1 − cosine(K, K at the start)",
        range_y=share_range(trees, "ansatz/ptk_drift"),
        reading=(
            "Drift of the pre-activation tangent covariance: near 0 the weights align to a fixed target, near 1 both "
            "move."
        ),
        misleads="Covariances are positive, so two unrelated ones are not at 1 either.",
        null="0 is the network before training.",
    )
