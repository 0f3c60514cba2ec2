"""Several runs laid over each other: the headline numbers, one line a run."""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from tangentlens.report.figures.curves import curves
from tangentlens.report.labelled import axis_label, bounds, last, variable
from tangentlens.report.section import Panel, Section, Table
from tangentlens.report.sections.facets import step_table
from tangentlens.report.words import percent

HEADLINES = {
    "training/test_accuracy": "Test accuracy",
    "training/probe_accuracy": "Accuracy on the probe",
    "training/test_loss": "Test loss",
    "training/loss": "Loss",
    "forward/richness": "D_LR (0 rich, 1 lazy)",
    "tangent/kernel_drift": "Drift of the tangent kernel",
    "tangent/effective_dimension": "Effective dimension of the tangent kernel",
    "tokens/sign_accuracy": "Sign accuracy of tokens",
}


def comparison(trees: Mapping[str, xr.DataTree]) -> Section | None:
    """A panel for each headline that at least two of the runs recorded."""
    panels = [panel for path, title in HEADLINES.items() if (panel := _overlaid(trees, path, title))]
    if not panels:
        return None
    ends = _ends(trees)
    first = panels[0]
    panels[0] = Panel(
        first.name, first.title, first.figures, first.reading, first.misleads, first.null, ends, first.finding
    )
    question = "Where do these runs part?"
    return Section("comparison", "Side by side", question, tuple(panels))


def _overlaid(trees: Mapping[str, xr.DataTree], path: str, title: str) -> Panel | None:
    lines = {
        run: values for run, tree in trees.items() if (values := variable(tree, path)) is not None and values.ndim == 1
    }
    if len(lines) < 2:
        return None
    some = next(iter(lines.values()))
    share = "accuracy" in path
    positive = all(bool((values > 0).all()) for values in lines.values())
    figure = curves(
        lines,
        y=axis_label(some, title),
        share=share,
        log="loss" in path and positive,
        range_y=(-0.02, 1.04) if share else bounds(some),
        height=320,
    )
    return Panel(
        path.replace("/", "-"),
        title,
        {"": figure},
        "One line a run.",
        "Runs with another probe, width or number of classes are not on one scale even where the axis is.",
        "Each run's own references are in its section below.",
        step_table({run: {title: line} for run, line in lines.items()}, share=share),
    )


def _ends(trees: Mapping[str, xr.DataTree]) -> Table:
    """Every headline at each run's last step."""
    rows = []
    for path, title in HEADLINES.items():
        values = [last(variable(tree, path)) for tree in trees.values()]
        if any(value == value for value in values):
            rows.append((title, *(map(percent, values) if "accuracy" in path else values)))
    return Table(("at the last step", *trees), tuple(rows))
