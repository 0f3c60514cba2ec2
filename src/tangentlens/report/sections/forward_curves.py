"""How good, how used, how strong: the three curves over modes that tell good features from used ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.decay import MODES, decay
from tangentlens.report.labelled import last, reference, steps_of, variable
from tangentlens.report.section import Panel
from tangentlens.report.sections.facets import Trees, named, per_run, run_table
from tangentlens.report.words import is_number

CURVES = {
    "cumulative quality": ("forward/cumulative_quality", "share of the target"),
    "cumulative utilisation": ("forward/cumulative_utilisation", "share of the learned function"),
    "relative eigenvalues": ("forward/relative_eigenvalues", "eigenvalue / largest"),
}


def three_curves(trees: Trees) -> Panel | None:
    """A figure for each of the three curves; a row of three for each run."""
    figures: dict[str, go.Figure] = {}
    for shown, (path, y) in CURVES.items():
        drawn = per_run(trees, lambda tree, path=path, y=y: _curve(tree, path, y))  # type: ignore[misc]
        figures |= {(named(trees, run, shown)): figure for run, figure in drawn.items()}
    if not figures:
        return None
    if len(trees) > 1:  # a row of three for each run
        figures = {name: figures[name] for run in trees for name in figures if name.startswith(f"{run}: ")}
    rows = [(run, *row) for run, tree in trees.items() for row in _curve_rows(tree)]
    modes = max(
        (
            values.sizes["mode"]
            for tree in trees.values()
            for path, _ in CURVES.values()
            if (values := variable(tree, path)) is not None
        ),
        default=0,
    )
    return Panel(
        "curves",
        "How good, how used, how strong?",
        figures,
        "Quality: can the strongest features express the target? Utilisation: how many does the last layer read? "
        "Eigenvalues: how strong is each? Rich networks use as many as there are outputs (dotted line) and let the "
        "rest fade.",
        "Quality measured on the examples the modes were fitted on rises to features / examples by itself, so read it "
        "beside the grey line of that held out; in a "
        "collapsed network neighbouring modes are interchangeable.",
        "Grey, where recorded: the first recorded step; the quality on one half of the examples of modes fitted on the "
        "other, at the last step, which can fall below 0; and the quality all features together would reach if they "
        "had nothing to do with the target. Dotted vertical: as many modes as outputs.",
        run_table(trees, ("run", "curve", "modes to reach 50 %", "modes to reach 95 %", "end"), rows),
        notes=(f"Of {modes:,} modes each figure draws {MODES:,}, thinning the tail.",) if modes > MODES else (),
    )


def _curve(tree: xr.DataTree, path: str, y: str) -> go.Figure | None:
    values = variable(tree, path)
    if values is None or "mode" not in values.dims:
        return None
    eigen = path.endswith("eigenvalues")
    start = {"first recorded step": values.values[0]} if values.sizes["step"] > 1 else {}
    held_out, chance = reference(tree, path, "held_out"), reference(tree, path, "chance")
    if held_out is not None:
        start["held out"] = held_out.values[-1]
    if chance is not None and is_number(last(chance)):
        start["as many unrelated features"] = np.full(values.sizes["mode"], last(chance))
    outputs = output_count(tree)
    gaps = dict.fromkeys(range(values.sizes["step"]), (outputs,)) if outputs else None
    return decay(
        {y: values},
        steps_of(values),
        y=y,
        references=start,
        gaps=gaps,
        log=eigen,
        height=320,
        range_y=None if eigen else (-0.02, 1.04),
        share=not eigen,
    ).update_layout(showlegend=False)


def output_count(tree: xr.DataTree) -> int | None:
    """How many outputs the network has, where the record says so."""
    outputs: Any = tree["forward"].attrs.get("outputs") if "forward" in tree.children else None
    return int(outputs) if is_number(outputs) else None


def _curve_rows(tree: xr.DataTree) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for shown, (path, _) in CURVES.items():
        values = variable(tree, path)
        if values is None or "mode" not in values.dims:
            continue
        if path.endswith("eigenvalues"):
            rows.append((shown, None, None, float(values.values[-1][-1])))
            continue
        rows.append((shown, *_reached(values)))
        held_out = reference(tree, path, "held_out")
        if held_out is not None and np.isfinite(held_out.values[-1]).any():
            rows.append((f"{shown}, held out", *_reached(held_out)))
    return rows


def _reached(values: xr.DataArray) -> tuple[Any, ...]:
    """Modes to reach a half and nearly all, and the end, at the last step."""
    final = values.values[-1][np.isfinite(values.values[-1])]
    reached = [np.flatnonzero(final >= share) for share in (0.5, 0.95)]
    return *(int(at[0]) + 1 if at.size else "not reached" for at in reached), float(final[-1])
