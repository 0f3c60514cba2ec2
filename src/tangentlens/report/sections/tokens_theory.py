"""Does kernel theory foresee what was trained? Predicted beside trained scores, and the drift that decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.clouds import cloud
from tangentlens.report.labelled import last, names_along, steps_of, variable
from tangentlens.report.section import Panel
from tangentlens.report.sections.facets import Trees, last_of, lines_panel, named, on_one_scale, run_table, scalar_lines
from tangentlens.report.sections.token_choice import kept_tokens, polarities, shown_labels
from tangentlens.report.words import is_number, number

SCORES = "tokens/label_scores"


def theory_panels(trees: Trees) -> list[Panel | None]:
    return [_predicted(trees), _drift(trees)]


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
            gap = np.abs(predicted.values[-1, :, i] - scores.values[-1, :, i])
            rows.append((run, labels[i], float(np.nanmax(gap)), last_of(tree, "tokens/kernel_drift")))
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
        run_table(trees, ("run", "label", "largest difference", "kernel drift"), rows, "At the last step."),
    )


def _drift(trees: Trees) -> Panel | None:
    def finding(tree: xr.DataTree) -> str:
        value = last(variable(tree, "tokens/kernel_drift"))
        return (
            f"The kernel between texts ends {number(value)} away from its direction at the start."
            if is_number(value)
            else ""
        )

    return lines_panel(
        trees,
        lambda tree: (
            scalar_lines(tree, {"kernel drift": "tokens/kernel_drift"}),
            {"y": "1 − cosine(K, K at the start)", "range_y": (-0.02, 1.04)},
        ),
        name="drift",
        title="Does the theory apply here?",
        finding=finding,
        reading="Fixed-kernel theory describes training while this stays near zero.",
        misleads="A small drift over all inputs can hide a large one on a few tokens.",
        null="0 is the network before training.",
    )
