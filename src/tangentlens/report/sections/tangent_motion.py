"""How the tangent kernel moved: its direction, its size, how many modes share it and in which layers it lives."""

from __future__ import annotations

from typing import Any

import xarray as xr

from tangentlens.report.figures.curves import Null
from tangentlens.report.labelled import variable
from tangentlens.report.section import Panel
from tangentlens.report.sections.facets import (
    Lines,
    Trees,
    last_of,
    layer_lines,
    lines_panel,
    scalar_lines,
    share_range,
)
from tangentlens.report.sections.training import accuracy_marks
from tangentlens.report.words import is_number, number


def motion_panels(trees: Trees) -> list[Panel | None]:
    return [_drift(trees), _growth(trees), _dimension(trees), _layers(trees)]


def _drift(trees: Trees) -> Panel | None:
    range_y = share_range(trees, "tangent/kernel_drift")

    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        options = {"y": "1 − cosine(K, K at the start)", "range_y": range_y, "marks": accuracy_marks(tree)}
        return scalar_lines(tree, {"kernel drift": "tangent/kernel_drift"}), options

    def finding(tree: xr.DataTree) -> str:
        drift = last_of(tree, "tangent/kernel_drift")
        return f"The kernel ends {number(drift)} away from its direction at the start." if is_number(drift) else ""

    return lines_panel(
        trees,
        draw,
        name="drift",
        title="Did the kernel turn?",
        finding=finding,
        reading="Zero: the kernel points where it pointed at the start. Towards one: the directions the network "
        "learns along are new ones.",
        misleads="The axis ends where the values do. One large constant mode keeps the cosine near one in networks "
        "that do learn features, so a small drift alone is no sign of laziness: look at the growth below and at the "
        "features above.",
        null="Zero is the network before training.",
    )


def _growth(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        options = {
            "y": "‖K‖ / ‖K at the start‖",
            "log": True,
            "nulls": [Null("unchanged", 1.0)],
            "marks": accuracy_marks(tree),
        }
        return scalar_lines(tree, {"kernel growth": "tangent/kernel_growth"}), options

    def finding(tree: xr.DataTree) -> str:
        growth = last_of(tree, "tangent/kernel_growth")
        return f"The kernel ends at {number(growth)} times its size at the start." if is_number(growth) else ""

    return lines_panel(
        trees,
        draw,
        name="growth",
        title="Did the kernel grow?",
        finding=finding,
        reading="At one the network is still the linear model it was at the start (lazy), provided that the kernel "
        "did not turn either.",
        misleads="Growing weights alone make a kernel grow, with no new feature in it.",
        null="Grey dashed: the size before training.",
    )


def _dimension(trees: Trees) -> Panel | None:
    return lines_panel(
        trees,
        lambda tree: (scalar_lines(tree, {"effective dimension": "tangent/effective_dimension"}), {"y": "modes"}),
        name="dimension",
        title="How many modes share the weight?",
        reading=(
            "The exponential of the entropy of the normalised eigenvalues: equal modes give their number, one mode "
            "gives 1."
        ),
        misleads="One large constant mode pulls it to 1 however rich the rest is.",
        null="Compare with the first step, the network before training.",
    )


def _layers(trees: Trees) -> Panel | None:
    return lines_panel(
        trees,
        lambda tree: (
            layer_lines(variable(tree, "tangent/layer_share")),
            {"y": "share of the kernel's trace", "share": True, "ordered": True, "range_y": (-0.02, 1.04)},
        ),
        name="layers",
        title="In which layers does the kernel live?",
        reading="One line a layer, from dark (first) to pale (last); the layers' kernels add up to the whole.",
        misleads="A layer's share depends on how the network is parametrised, not only on what it has learned.",
        null="Compare with the first step: a share that never changes was decided by the initialisation.",
    )
