"""Did it learn, and where did the weights go? Losses, accuracies, and the way each layer travelled."""

from __future__ import annotations

from typing import Any

import xarray as xr

from tangentlens.report.labelled import first_step, variable
from tangentlens.report.section import Section
from tangentlens.report.sections.facets import Lines, Trees, layer_lines, lines_panel, nulls_of, scalar_lines
from tangentlens.report.words import number, percent

KNOWN = {"probe_chance", "parameter_norm", "parameter_distance"}


def present(tree: xr.DataTree) -> bool:
    return "training" in tree.children and bool(_scalars(tree))


def section(trees: Trees) -> Section:
    panels = [_accuracy(trees), _loss(trees), _travel(trees), _layers(trees), _others(trees)]
    return Section(
        "training",
        "Training",
        "What did the run look like from outside: did it fit, and did it generalise?",
        tuple(panel for panel in panels if panel),
    )


def _scalars(tree: xr.DataTree) -> Lines:
    """Everything of one number a step, whoever recorded it."""
    found = {
        name: variable(tree, f"training/{name}") for name in sorted(map(str, tree["training"].data_vars), key=_order)
    }
    return {name: values for name, values in found.items() if values is not None and values.ndim == 1}


def _order(name: str) -> tuple[int, str]:
    """Train before test before the rest, so that a colour means the same on every page."""
    return next((i for i, which in enumerate(("train", "test", "val")) if name.startswith(which)), 3), name


def _kind(name: str) -> str:
    if name in KNOWN:
        return "known"
    return next((kind for kind in ("accuracy", "loss") if kind in name.lower()), "other")


def _of_kind(tree: xr.DataTree, kind: str) -> Lines:
    scalars = _scalars(tree) if "training" in tree.children else {}
    return {_shown(name): values for name, values in scalars.items() if _kind(name) == kind}


def _shown(name: str) -> str:
    return name.replace("_", " ")


def accuracy_marks(tree: xr.DataTree, threshold: float = 0.95) -> dict[str, int]:
    """The steps from which on train and test accuracy stay above the threshold."""
    marks = {}
    for which, word in (("train", "fits"), ("test", "generalises")):
        step = first_step(variable(tree, f"training/{which}_accuracy"), threshold)
        if step is not None:
            marks[word] = step
    return marks


def _accuracy(trees: Trees) -> Any:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        nulls = nulls_of(tree, "training/probe_accuracy", {"chance": "largest class"})
        for name in ("test_accuracy", "train_accuracy"):
            nulls = nulls or nulls_of(tree, f"training/{name}", {"chance": "chance"})
        options = {"y": "accuracy", "share": True, "range_y": (-0.02, 1.04), "nulls": nulls}
        return _of_kind(tree, "accuracy"), {**options, "marks": accuracy_marks(tree)}

    def finding(tree: xr.DataTree) -> str:
        ends = {name: values.values[-1] for name, values in _of_kind(tree, "accuracy").items()}
        return (
            "At the end: " + ", ".join(f"{name} {percent(value)}" for name, value in ends.items()) + "." if ends else ""
        )

    return lines_panel(
        trees,
        draw,
        name="accuracy",
        title="How often is it right?",
        finding=finding,
        reading=(
            "A gap between train and test that closes late is delayed generalisation; one that stays is memorising."
        ),
        misleads="Accuracy says nothing about how the network does it: a lazy and a rich network can share one curve.",
        null="The grey dashed line is the share of the largest class: always saying the same label does as well. "
        "Dotted vertical lines: the steps from which an accuracy stays at or above 95 %.",
    )


def _loss(trees: Trees) -> Any:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        lines = _of_kind(tree, "loss")
        positive = all(bool((values > 0).any()) for values in lines.values())
        return lines, {"y": "loss", "log": positive, "marks": accuracy_marks(tree)}

    return lines_panel(
        trees,
        draw,
        name="loss",
        title="How far from the targets?",
        reading="Lower is better; the axis is logarithmic, so a straight line is exponential decay.",
        misleads="Losses of different kinds or on differently scaled targets cannot be compared between runs.",
        null="Losses have no chance level of their own: compare with the first step, the untrained network.",
    )


def _travel(trees: Trees) -> Any:
    paths = {"norm": "training/parameter_norm", "distance from the start": "training/parameter_distance"}

    def finding(tree: xr.DataTree) -> str:
        lines = scalar_lines(tree, paths)
        if len(lines) < 2:
            return ""
        norm, way = (float(line.values[-1]) for line in lines.values())
        return f"The parameters end {number(way)} away from where they began, at a norm of {number(norm)}."

    return lines_panel(
        trees,
        lambda tree: (scalar_lines(tree, paths), {"y": "Frobenius norm"}),
        name="travel",
        finding=finding,
        title="How far did the weights travel?",
        reading="A distance that is small beside the norm is a first sign of lazy training.",
        misleads="The norm also moves under weight decay alone, and a small move can still change every feature: "
        "read the kernel's drift and the richness for that.",
        null="Zero distance is the untrained network.",
    )


def _layers(trees: Trees) -> Any:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        values = variable(tree, "training/layer_distance")
        return layer_lines(values), {"y": "distance from the start", "ordered": True}

    return lines_panel(
        trees,
        draw,
        name="layers",
        title="Which layers moved?",
        reading=(
            "One line a layer, from dark (first) to pale (last): the norm of its parameters minus the initial ones."
        ),
        misleads="Layers differ in size and scale; a large distance in a large layer may be a small relative change.",
        null="Zero is the untrained layer.",
    )


def _others(trees: Trees) -> Any:
    return lines_panel(
        trees,
        lambda tree: (_of_kind(tree, "other"), {"y": "value"}),
        name="others",
        title="What else was observed",
        reading="Scalars handed to the recorder, as they were passed.",
        misleads="They share one axis here, whatever their units.",
        null="No reference was recorded for these.",
    )
