"""Several runs laid over each other: the headline numbers, one line a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import xarray as xr

from tangentlens.report.figures.curves import curves
from tangentlens.report.labelled import axis_label, bounds, last, variable
from tangentlens.report.scalars import Kind, accuracy, held_out, trained_on
from tangentlens.report.section import Panel, Section, Table
from tangentlens.report.sections.facets import step_table
from tangentlens.report.words import percent

HEADLINES: dict[str, tuple[str, Callable[[xr.DataTree], xr.DataArray | None]]] = {
    "training-test_accuracy": ("Accuracy on held-out examples", lambda tree: _accuracy(tree, held_out)),
    "training-train_accuracy": ("Accuracy on the training set", lambda tree: _accuracy(tree, trained_on)),
    "training-probe_accuracy": ("Accuracy on the probe", lambda tree: variable(tree, "training/probe_accuracy")),
    "training-test_loss": ("Loss on held-out examples", lambda tree: _loss(tree, held_out)),
    "training-loss": ("Loss", lambda tree: _loss(tree, trained_on)),
    "forward-richness": ("D_LR (0 rich, 1 lazy)", lambda tree: variable(tree, "forward/richness")),
    "tangent-kernel_drift": ("Drift of the tangent kernel", lambda tree: variable(tree, "tangent/kernel_drift")),
    "tangent-effective_dimension": (
        "Effective dimension of the tangent kernel",
        lambda tree: variable(tree, "tangent/effective_dimension"),
    ),
    "tokens-sign_accuracy": ("Sign accuracy of tokens", lambda tree: variable(tree, "tokens/sign_accuracy")),
}
"""Numbers that runs are compared by, under whatever name each of them observed it."""


def comparison(trees: Mapping[str, xr.DataTree]) -> Section | None:
    """A panel for each headline that at least two of the runs recorded."""
    panels = [panel for name in HEADLINES if (panel := _overlaid(trees, name))]
    if not panels:
        return None
    ends = _ends(trees)
    first = panels[0]
    panels[0] = Panel(
        first.name, first.title, first.figures, first.reading, first.misleads, first.null, ends, first.finding
    )
    question = "Where do these runs part?"
    return Section("comparison", "Side by side", question, tuple(panels))


def _accuracy(tree: xr.DataTree, which: Callable[[xr.DataTree, Kind], str | None]) -> xr.DataArray | None:
    name = which(tree, "accuracy")
    return None if name is None else accuracy(tree, name)


def _loss(tree: xr.DataTree, which: Callable[[xr.DataTree, Kind], str | None]) -> xr.DataArray | None:
    name = which(tree, "loss")
    return None if name is None else variable(tree, f"training/{name}")


def _overlaid(trees: Mapping[str, xr.DataTree], name: str) -> Panel | None:
    title, read = HEADLINES[name]
    lines = {run: values for run, tree in trees.items() if (values := read(tree)) is not None and values.ndim == 1}
    if len(lines) < 2:
        return None
    some = next(iter(lines.values()))
    share = "accuracy" in name
    positive = all(bool((values > 0).all()) for values in lines.values())
    figure = curves(
        lines,
        y=axis_label(some, title),
        share=share,
        log="loss" in name and positive,
        range_y=(-0.02, 1.04) if share else bounds(some),
        height=320,
    )
    return Panel(
        name,
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
    for name, (title, read) in HEADLINES.items():
        values = [last(read(tree)) for tree in trees.values()]
        if any(value == value for value in values):
            rows.append((title, *(map(percent, values) if "accuracy" in name else values)))
    return Table(("at the last step", *trees), tuple(rows))
