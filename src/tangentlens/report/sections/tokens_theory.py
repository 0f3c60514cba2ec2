"""Does kernel theory foresee what was trained? Predicted beside trained scores, and the drift that decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.clouds import cloud
from tangentlens.report.figures.curves import Null
from tangentlens.report.labelled import last, names_along, steps_of, variable
from tangentlens.report.section import Panel
from tangentlens.report.sections.facets import Trees, lines_panel, named, on_one_scale, run_table, said, scalar_lines
from tangentlens.report.sections.token_choice import kept_tokens, polarities, shown_labels
from tangentlens.report.words import is_number, number

SCORES = "tokens/label_scores"
MOVES = {"tokens/kernel_change": "change", "tokens/kernel_drift": "1 − cosine"}
"""How a kernel moves: against its initial size, and in direction."""


def theory_panels(trees: Trees) -> list[Panel | None]:
    return [_predicted(trees), _drift(trees), _change(trees)]


def _predicted(trees: Trees) -> Panel | None:
    figures: dict[str, go.Figure] = {}
    rows: list[tuple[Any, ...]] = []
    for run, tree in trees.items():
        predicted, scores = variable(tree, "tokens/predicted_scores"), variable(tree, SCORES)
        if predicted is None or scores is None:
            continue
        predicted, scores = xr.align(
            predicted.transpose("step", "token", "label"), scores.transpose("step", "token", "label")
        )
        if not scores.sizes["step"]:
            continue
        keep, labels, tokens = kept_tokens(scores), names_along(scores, "label"), names_along(scores, "token")
        for i in shown_labels(scores):
            figures[named(trees, run, labels[i])] = cloud(
                predicted.values[:, keep, i],
                scores.values[:, keep, i],
                steps_of(scores),
                [tokens[k] for k in keep],
                x="score by kernel flow",
                y="trained score",
                groups=polarities(scores, keep),
                diagonal=True,
            )
            rows.append((run, labels[i], *agreement(predicted.values[-1, :, i], scores.values[-1, :, i])))
    if not figures:
        return None
    return Panel(
        "predicted",
        "Does kernel theory foresee the scores?",
        on_one_scale(figures),
        "On the diagonal: the scores are what a fixed kernel would have learned. Off it: training left the theory's "
        "range.",
        "Agreement can be coincidence when the kernel drifted: look at the drift before believing the theory.",
        "Grey dashed: perfect agreement.",
        run_table(trees, ("run", "label", "correlation", "relative error"), rows, "At the last step."),
        finding=said(trees, applies),
    )


def agreement(predicted: np.ndarray, trained: np.ndarray) -> tuple[float, float]:
    """Pearson's correlation of two lists of scores, and the size of their difference over that of the prediction."""
    both = np.isfinite(predicted) & np.isfinite(trained)
    left, right = predicted[both].astype(float), trained[both].astype(float)
    size, spread = np.linalg.norm(left), np.std(left) * np.std(right) if both.any() else 0.0
    together = float(np.mean((left - left.mean()) * (right - right.mean())) / spread) if spread > 0 else np.nan
    return together, float(np.linalg.norm(right - left) / size) if size > 0 else np.nan


def applies(tree: xr.DataTree) -> str:
    """Whether a constant kernel explains the run: both ways a kernel moves, each against the limit recorded with it."""
    seen = [
        f"{what} {number(last(values))} (≤ {number(values.attrs['limit'])})"
        for path, what in MOVES.items()
        if (values := variable(tree, path)) is not None and "limit" in values.attrs and is_number(last(values))
    ]
    if not seen:
        return ""
    said = "Theory does not apply here" if _out_of_range(tree) else "Training is close to lazy"
    return f"{said}: kernel {', '.join(seen)}."


def _out_of_range(tree: xr.DataTree) -> bool:
    """Whether the kernel ends beyond a limit recorded with its movement."""
    moved = (variable(tree, path) for path in MOVES)
    return any(values is not None and last(values) > values.attrs.get("limit", np.inf) for values in moved)


def _drift(trees: Trees) -> Panel | None:
    return lines_panel(
        trees,
        lambda tree: (
            scalar_lines(tree, {"kernel drift": "tokens/kernel_drift"}),
            {"y": "1 − cosine(K, K at the start)", "range_y": (-0.02, 1.04), "nulls": _limit(tree, "kernel_drift")},
        ),
        name="drift",
        title="Does the theory apply here?",
        finding=applies,
        reading="Fixed-kernel theory describes training while this stays near zero.",
        misleads="A small drift over all inputs can hide a large one on a few tokens, and a kernel that grows without "
        "turning does not show here.",
        null="0 is the network before training. Grey dashed: the most that is allowed.",
    )


def _change(trees: Trees) -> Panel | None:
    return lines_panel(
        trees,
        lambda tree: (
            scalar_lines(tree, {"kernel change": "tokens/kernel_change"}),
            {"y": "|K − K at the start| / |K at the start|", "nulls": _limit(tree, "kernel_change")},
        ),
        name="change",
        title="And how much did the kernel grow?",
        reading="The change of the kernel over its size at the start: at 1 it has moved by its own size. Turning and "
        "growing both count.",
        misleads="A network whose scores merely grow has a growing kernel too: the theory is then wrong in its times.",
        null="0 is the network before training. Grey dashed: the most that is allowed.",
    )


def _limit(tree: xr.DataTree, name: str) -> list[Null]:
    values = variable(tree, f"tokens/{name}")
    return [] if values is None or "limit" not in values.attrs else [Null("allowed", float(values.attrs["limit"]))]
