"""Does 'not' turn an adjective round? The four groups beside what adding up single tokens would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.curves import Null, curves
from tangentlens.report.labelled import last, names_along, reference, variable
from tangentlens.report.section import Panel
from tangentlens.report.sections.facets import Trees, named, on_one_scale, run_table, said
from tangentlens.report.words import is_number, number

SCORES = "tokens/negation"


def negation_panel(trees: Trees) -> Panel | None:
    """A figure a label, a line a group; the additive baseline of the negated groups in grey."""
    figures: dict[str, go.Figure] = {}
    rows: list[tuple[Any, ...]] = []
    for run, tree in trees.items():
        values, additive = variable(tree, SCORES), reference(tree, SCORES, "null")
        if values is None or not {"group", "label"} <= set(values.dims):
            continue
        labels, groups = names_along(values, "label"), names_along(values, "group")
        for i in [1] if len(labels) == 2 else range(min(4, len(labels))):
            lines = {group: values.isel(group=g, label=i) for g, group in enumerate(groups)}
            sums = (
                {} if additive is None else {group: additive.isel(group=g, label=i) for g, group in enumerate(groups)}
            )
            nulls = [
                Null(f"{group}, added up", level)
                for group, level in sums.items()
                if "not" in group and np.isfinite(level).any()
            ]
            figures[named(trees, run, labels[i])] = curves(
                lines, y=f"score for {labels[i]}", nulls=[Null("no push", 0.0), *nulls]
            )
            rows += [(run, labels[i], group, last(line), last(sums.get(group))) for group, line in lines.items()]
    if not figures:
        return None
    return Panel(
        "negation",
        "Does 'not' turn an adjective round?",
        on_one_scale(figures),
        "A network that understands negation gives 'not adj' the sign opposite to 'adj' in both groups. One that "
        "only adds up tokens lies on its grey line.",
        "'not' leans negative by itself in most corpora, so 'not good' can look right without any understanding: the "
        "test is 'not bad'.",
        "Grey dashed: the score of 'not' plus the score of the adjective.",
        run_table(trees, ("run", "label", "group", "score", "added up"), rows, "At the last step."),
        finding=said(trees, _sentence),
    )


def _sentence(tree: xr.DataTree) -> str:
    values = variable(tree, SCORES)
    if values is None or not {"group", "label"} <= set(values.dims) or values.sizes["label"] != 2:
        return ""
    ends = {group: last(values.isel(group=g, label=1)) for g, group in enumerate(names_along(values, "group"))}
    if not all(is_number(ends.get(group)) for group in ("adj-", "not adj-")):
        return ""
    turned = ends["adj-"] < 0 < ends["not adj-"]
    scores = f"{number(ends['adj-'])} becomes {number(ends['not adj-'])}"
    return f"'not' {'turns' if turned else 'does not turn'} negative adjectives round: {scores}."
