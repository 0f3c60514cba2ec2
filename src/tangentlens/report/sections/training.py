"""Did it learn, and where did the weights go? Losses, accuracies, and the way each layer travelled."""

from __future__ import annotations

from typing import Any

import xarray as xr

from tangentlens.report.labelled import first_step, variable
from tangentlens.report.scalars import accuracy, held_out, kind, order, shown, trained_on
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
        name: variable(tree, f"training/{name}") for name in sorted(map(str, tree["training"].data_vars), key=order)
    }
    return {name: values for name, values in found.items() if values is not None and values.ndim == 1}


def _of_kind(tree: xr.DataTree, which: str) -> Lines:
    scalars = _scalars(tree) if "training" in tree.children else {}
    return {shown(name): values for name, values in scalars.items() if name not in KNOWN and kind(name) == which}


def _accuracies(tree: xr.DataTree) -> Lines:
    scalars = _scalars(tree) if "training" in tree.children else {}
    found = {name: accuracy(tree, name) for name in scalars if kind(name) == "accuracy"}
    return {shown(name): values for name, values in found.items() if values is not None}


def accuracy_marks(tree: xr.DataTree, threshold: float = 0.95) -> dict[str, int]:
    """The steps from which on the accuracies on the training and the held-out set stay above the threshold."""
    marks = {}
    for name, word in ((trained_on(tree, "accuracy"), "fits"), (held_out(tree, "accuracy"), "generalises")):
        step = None if name is None else first_step(accuracy(tree, name), threshold)
        if step is not None:
            marks[word] = step
    return marks


def _accuracy(trees: Trees) -> Any:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        nulls = nulls_of(tree, "training/probe_accuracy", {"chance": "largest class"})
        for name in (held_out(tree, "accuracy"), trained_on(tree, "accuracy")):
            nulls = nulls or nulls_of(tree, f"training/{name}", {"chance": "chance"})
        options = {"y": "accuracy", "share": True, "range_y": (-0.02, 1.04), "nulls": nulls}
        return _accuracies(tree), {**options, "marks": accuracy_marks(tree)}

    def finding(tree: xr.DataTree) -> str:
        ends = {name: values.values[-1] for name, values in _accuracies(tree).items()}
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
