"""What does each token say? Label scores against co-occurrence, the feature bias, and the kernel's prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.clouds import POINTS, cloud
from tangentlens.report.figures.curves import Null
from tangentlens.report.labelled import axis_label, names_along, steps_of, variable
from tangentlens.report.section import Panel, Section
from tangentlens.report.sections.facets import (
    Lines,
    Trees,
    last_of,
    layer_lines,
    lines_panel,
    named,
    nulls_of,
    on_one_scale,
    run_table,
    scalar_lines,
)
from tangentlens.report.sections.negation import negation_panel
from tangentlens.report.sections.token_choice import kept_tokens, polarities, shown_labels
from tangentlens.report.sections.tokens_theory import theory_panels
from tangentlens.report.words import is_number, number, percent

SCORES = "tokens/label_scores"


def present(tree: xr.DataTree) -> bool:
    return "tokens" in tree.children and len(tree["tokens"].data_vars) > 0


def section(trees: Trees) -> Section:
    panels = [_scores(trees), _follows(trees), _bias(trees), negation_panel(trees), *theory_panels(trees)]
    return Section(
        "tokens",
        "Token features",
        "Which label does each token push for, and does that follow from how often they occur together?",
        tuple(panel for panel in panels if panel),
    )


def _scores(trees: Trees) -> Panel | None:
    figures: dict[str, go.Figure] = {}
    rows: list[tuple[Any, ...]] = []
    most = 0
    for run, tree in trees.items():
        scores = variable(tree, SCORES)
        if scores is None or not {"token", "label"} <= set(scores.dims):
            continue
        scores = scores.transpose("step", "token", "label")
        keep, labels, tokens = kept_tokens(scores), names_along(scores, "label"), names_along(scores, "token")
        most = max(most, len(tokens))
        for i in shown_labels(scores):
            figures[named(trees, run, labels[i])] = _score_cloud(scores, i, labels[i], keep, tokens)
            rows += [(run, labels[i], *row) for row in _extremes(scores, i, tokens)]
    if not figures:
        return None
    return Panel(
        "scores",
        "Does a token's score follow its company?",
        on_one_scale(figures),
        "One dot a token; hover names it. Up: the score the network gives the token alone for the label. Right: how "
        "often the two occur together. A rising cloud: decisions come from co-occurrence.",
        "Scores of single tokens leave out context; rare tokens scatter for want of data.",
        "Grey dashed lines: no push, and the company an average token keeps. Shapes repeat the colours.",
        run_table(
            trees,
            ("run", "label", "token", "score", "co-occurrence"),
            rows,
            "Strongest and weakest tokens at the last step.",
        ),
        notes=(f"Of {most:,} tokens the figure shows {POINTS:,}.",) if most > POINTS else (),
    )


def _score_cloud(scores: xr.DataArray, i: int, label: str, keep: np.ndarray, tokens: list[str]) -> go.Figure:
    up = scores.values[:, keep, i]
    names = [tokens[k] for k in keep]
    groups = polarities(scores, keep)
    y = f"score for {label}"
    if "cooccurrence" in scores.coords:
        across, x, middle = company(scores, i, label)
        counts = [int(count) for count in np.asarray(scores["count"])[keep]] if "count" in scores.coords else None
        return cloud(across[keep], up, steps_of(scores), names, x=x, y=y, groups=groups, middle=middle, counts=counts)
    order = np.argsort(np.argsort(up[-1])).astype(float)
    return cloud(order, up, steps_of(scores), names, x="tokens, by score at the end", y=y, groups=groups)


def company(scores: xr.DataArray, i: int, label: str) -> tuple[np.ndarray, str, float]:
    """How much each token keeps company with a label, what that is called, and where it says nothing.

    Counts are shown as shares of the token's own occurrences: the label's share of all occurrences says nothing. What
    was recorded as a rate already is shown as it is.
    """
    together = scores["cooccurrence"].transpose("token", "label")
    table = np.asarray(together, dtype=float)
    if "count" not in scores.coords or table.max() <= 1:
        return table[:, i], axis_label(together, "co-occurrence"), 0.0
    seen = table.sum(axis=1)
    return (
        table[:, i] / np.where(seen > 0, seen, np.nan),
        f"share of its occurrences under {label}",
        float(table[:, i].sum() / seen.sum()),
    )


def _extremes(scores: xr.DataArray, i: int, tokens: list[str]) -> list[tuple[Any, ...]]:
    final = scores.values[-1, :, i]
    order = [int(k) for k in np.argsort(np.where(np.isfinite(final), final, -np.inf)) if np.isfinite(final[k])]
    together = company(scores, i, "")[0] if "cooccurrence" in scores.coords else None
    chosen = list(dict.fromkeys([*order[::-1][:4], *order[:4][::-1]]))
    return [(tokens[k], final[k], None if together is None else together[k]) for k in chosen]


def _follows(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        lines = scalar_lines(tree, {"sign accuracy": "tokens/sign_accuracy"})
        follows = variable(tree, "tokens/score_correlation")
        by = f" with the {follows.attrs['statistic']}" if follows is not None and "statistic" in follows.attrs else ""
        per_label = layer_lines(follows, "label")
        if len(per_label) == 2:  # scores are centred over labels: two labels mirror each other
            per_label.pop(next(iter(per_label)))
        lines |= {f"rank correlation{by}, {label}": line for label, line in per_label.items()}
        nulls = nulls_of(tree, "tokens/sign_accuracy", {"chance": "chance of the sign"})
        return lines, {"y": "agreement", "nulls": [*nulls, Null("no correlation", 0.0)], "range_y": (-1.04, 1.04)}

    def finding(tree: xr.DataTree) -> str:
        value, chance = last_of(tree, "tokens/sign_accuracy"), last_of(tree, "tokens/sign_accuracy_chance")
        beside = f" (chance {percent(chance)})" if is_number(chance) else ""
        return f"{percent(value)} of polar tokens have the right sign at the end{beside}." if is_number(value) else ""

    return lines_panel(
        trees,
        draw,
        name="follows",
        title="How closely, and since when?",
        finding=finding,
        reading=(
            "Rank correlation of scores with co-occurrence over tokens, and the share of polar tokens pushed the "
            "right way."
        ),
        misleads="Both are about single tokens, and frequent tokens count no more than rare ones.",
        null="Grey dashed: the sign accuracy of one sign for all words or of random signs (positive and negative words "
        "weigh the same, however many there are of each), and a correlation of zero.",
    )


def _bias(trees: Trees) -> Panel | None:
    paths = {"asymmetry": "tokens/asymmetry", "bias ratio": "tokens/bias_ratio"}

    def foreseen(tree: xr.DataTree) -> list[Null]:
        return nulls_of(tree, "tokens/bias_ratio", {"theory": "bias ratio in theory"})

    def finding(tree: xr.DataTree) -> str:
        value = last_of(tree, "tokens/asymmetry")
        return f"Asymmetry ends at {number(value)} (0: balanced)." if is_number(value) else ""

    return lines_panel(
        trees,
        lambda tree: (scalar_lines(tree, paths), {"y": "value", "nulls": [Null("no bias", 0.0), *foreseen(tree)]}),
        name="bias",
        title="Does every token carry the same extra push?",
        finding=finding,
        reading="Asymmetry compares the mean scores of positive and negative tokens; the bias ratio is the kernel "
        "between inputs that share no token, over its diagonal. Both are 0 without a feature bias.",
        misleads="Unequal classes cause asymmetry without any bias of the architecture.",
        null="Grey dashed: no bias, and the bias ratio at infinite width where it was given.",
    )
