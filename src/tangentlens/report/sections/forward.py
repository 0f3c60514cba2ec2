"""What does the last layer see? Quality, use and strength of the forward features, and how rich the dynamics were."""

from __future__ import annotations

from typing import Any

import xarray as xr

from tangentlens.report.figures.curves import Null
from tangentlens.report.labelled import last, reference, variable
from tangentlens.report.section import Panel, Section
from tangentlens.report.sections.facets import (
    Lines,
    Trees,
    last_of,
    lines_panel,
    nulls_of,
    run_table,
    scalar_lines,
)
from tangentlens.report.sections.forward_curves import output_count, three_curves
from tangentlens.report.sections.regime import regime_name, regime_rows
from tangentlens.report.sections.training import accuracy_marks
from tangentlens.report.words import is_number, number, percent

RICHNESS = "forward/richness"
LEVELS = {"initial": "initial network", "null": "isotropic features", "chance": "random head"}


def present(tree: xr.DataTree) -> bool:
    return "forward" in tree.children and len(tree["forward"].data_vars) > 0


def section(trees: Trees) -> Section:
    panels = [_richness(trees), three_curves(trees), _dimensions(trees), _decomposition(trees), _baselines(trees)]
    return Section(
        "forward",
        "Forward features",
        "How good are the features under the last layer, which of them does it use, and how strong are they?",
        tuple(panel for panel in panels if panel),
    )


def _richness(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        paths = {"D_LR": RICHNESS, "D_LR, robust convention": "forward/richness_robust"}
        low, high = reference(tree, RICHNESS, "low"), reference(tree, RICHNESS, "high")
        intervals = {"D_LR": (low, high)} if low is not None and high is not None else {}
        options = {"y": "D_LR (0 rich, 1 lazy)", "range_y": (-0.02, 1.04), "intervals": intervals}
        options |= {"nulls": nulls_of(tree, RICHNESS, LEVELS), "marks": accuracy_marks(tree)}
        return scalar_lines(tree, paths), options

    panel = lines_panel(
        trees,
        draw,
        name="richness",
        title="Rich or lazy?",
        finding=richness_finding,
        reading="D_LR compares the features with the least that could express the learned function: 0 means nothing "
        "but that is left (rich), 1 means the features ignore the function (lazy). It uses no labels and no "
        "accuracy.",
        misleads="It sees the last layer only; class imbalance raises it without laziness; and networks of different "
        "width or number of classes have different grey levels, so compare values only beside those.",
        null="Grey dashed lines: the network before training, isotropic features of the same size, and a random head. "
        "The shaded band is the interval of the value itself.",
    )
    if panel is None:
        return None
    rows = [(run, *row) for run, tree in trees.items() for row in (*_level_rows(tree), *regime_rows(tree))]
    columns = ("run", "at the last step", "value")
    return Panel(
        panel.name,
        panel.title,
        panel.figures,
        panel.reading,
        panel.misleads,
        panel.null,
        run_table(trees, columns, rows),
        panel.finding,
        (*panel.notes, *_cautions(trees)),
    )


def _cautions(trees: Trees) -> tuple[str, ...]:
    """Too few examples, unequal classes, conventions that differ: what the record says against its own value."""
    said = {run: tree["forward"].attrs.get("cautions") for run, tree in trees.items() if "forward" in tree.children}
    return tuple(f"{run}: {text}." for run, text in said.items() if text)


def richness_finding(tree: xr.DataTree) -> str:
    """D_LR at the end beside every level recorded for it, and the regime by its declared thresholds."""
    value = last_of(tree, RICHNESS)
    if not is_number(value):
        return ""
    levels = [
        f"{word} {number(last(level))}"
        for role, word in LEVELS.items()
        if (level := reference(tree, RICHNESS, role)) is not None
    ]
    beside = f" ({', '.join(levels)})" if levels else ""
    regime = regime_name(tree)
    return f"D_LR ends at {number(value)}{beside}." + (f" Regime: {regime}." if regime else "")


def _level_rows(tree: xr.DataTree) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [("D_LR", last_of(tree, RICHNESS))]
    for role, word in (("low", "interval, low"), ("high", "interval, high"), *LEVELS.items()):
        level = reference(tree, RICHNESS, role)
        if level is not None:
            rows.append((word, last(level)))
    rows.append(("D_LR, robust convention", last_of(tree, "forward/richness_robust")))
    return [(word, value) for word, value in rows if is_number(value)]


def _dimensions(trees: Trees) -> Panel | None:
    paths = {
        "of the eigenvalues": "forward/effective_dimension",
        "of the quality": "forward/effective_dimension_quality",
        "of the utilisation": "forward/effective_dimension_utilisation",
    }

    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        outputs = output_count(tree)
        nulls = [Null("number of outputs", float(outputs))] if outputs else []
        return scalar_lines(tree, paths), {"y": "effective dimension", "log": True, "nulls": nulls}

    def finding(tree: xr.DataTree) -> str:
        features = tree["forward"].attrs.get("features")
        lines = scalar_lines(tree, paths)
        ends = ", ".join(f"{number(last(line))} {shown}" for shown, line in lines.items())
        return (
            f"At the end: {ends}{f', of {number(features)} features' if is_number(features) else ''}." if ends else ""
        )

    return lines_panel(
        trees,
        draw,
        name="dimensions",
        title="How many features count?",
        finding=finding,
        reading="Near the number of outputs: only what the task needs is left (minimal features). Far above: many "
        "features are kept (extended features).",
        misleads="An entropy of weights: one strong constant feature lowers it without any collapse.",
        null="Grey dashed: the number of outputs, the least that can express independent outputs.",
    )


def _decomposition(trees: Trees) -> Panel | None:
    paths = {
        "inside the output span": "forward/inside_share",
        "participation ratio": "forward/participation_ratio",
        "rank of the outputs": "forward/output_rank",
    }

    def finding(tree: xr.DataTree) -> str:
        inside = last_of(tree, "forward/inside_share")
        return (
            f"{percent(inside)} of the centred feature variance lies inside the output span at the end."
            if is_number(inside)
            else ""
        )

    return lines_panel(
        trees,
        lambda tree: (scalar_lines(tree, paths), {"y": "share, or number of directions", "log": True}),
        name="decomposition",
        title="Why is D_LR what it is?",
        finding=finding,
        reading="1 − D_LR = inside share · √(participation ratio / rank): laziness is either feature variance "
        "outside what the outputs use, or used features of unequal strength.",
        misleads="The parts are those of D_LR in the robust convention, and make up that value exactly.",
        null="Perfectly rich: an inside share of 1, and a participation ratio equal to the rank.",
    )


def _baselines(trees: Trees) -> Panel | None:
    paths = {
        "alignment with the initial features": "forward/initial_alignment",
        "NC1": "forward/nc1",
        "change of the tangent kernel": "tangent/kernel_drift",
    }

    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        lines = scalar_lines(tree, paths)
        norm = variable(tree, "training/parameter_norm")
        if lines and norm is not None:
            lines["relative norm"] = norm / float(norm.values[0])
        return lines, {"y": "value", "log": True}

    def finding(tree: xr.DataTree) -> str:
        value = last_of(tree, "forward/initial_alignment")
        return f"Alignment with the initial features ends at {number(value)}." if is_number(value) else ""

    return lines_panel(
        trees,
        draw,
        name="baselines",
        title="What do the usual measures say?",
        finding=finding,
        reading="Kernel alignment with the features at the start (1: unchanged), neural-collapse variability (0: every "
        "class is one point), the change of the tangent kernel (0: it kept its direction) and the parameter norm over "
        "its first value, for comparison with D_LR.",
        misleads="Weight decay moves the first and the last without rich dynamics; the second needs labels, depends on "
        "output scale, and reverses when targets are scaled down; the tangent kernel is that of all layers, on fewer "
        "examples.",
        null="An alignment of exactly 1 is a network whose features never moved.",
    )
