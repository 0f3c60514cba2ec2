"""What the recording itself cost, and what went wrong in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import xarray as xr

from tangentlens.report.labelled import attribute, errors, last, names_along, variable
from tangentlens.report.section import Panel, Section
from tangentlens.report.sections.facets import Lines, Trees, last_of, lines_panel, run_table, scalar_lines
from tangentlens.report.words import is_number, percent, seconds_in_words

COSTLIEST = 6  # measures with a line of their own


def present(tree: xr.DataTree) -> bool:
    return "overhead" in tree.children and len(tree["overhead"].data_vars) > 0


def section(trees: Trees) -> Section:
    panels = [_share(trees), _measures(trees)]
    failed = [
        f"{run}: {len(found)} measurements failed and are listed above."
        for run, tree in trees.items()
        if (found := errors(tree))
    ]
    return Section(
        "overhead",
        "The recording itself",
        "What did looking cost?",
        tuple(panel for panel in panels if panel),
        tuple(failed),
    )


def overhead_share(tree: xr.DataTree) -> float:
    """The recorder's share of the run time so far."""
    value = attribute(tree, "overhead", None)
    return float(value) if is_number(value) else last_of(tree, "overhead/share")


def _share(trees: Trees) -> Panel | None:
    def finding(tree: xr.DataTree) -> str:
        share = overhead_share(tree)
        return f"Recording took {percent(share)} of the run time." if is_number(share) else ""

    return lines_panel(
        trees,
        lambda tree: (
            scalar_lines(tree, {"recorder's share": "overhead/share"}),
            {"y": "share of the run time so far", "share": True},
        ),
        name="share",
        title="How much of the run time went into recording?",
        finding=finding,
        reading="Early steps are recorded densely, so the share starts high and falls as training goes on.",
        misleads="Times depend on the machine and on what else it was doing.",
        null="0 % is training without a recorder.",
    )


def _by_cost(values: xr.DataArray) -> list[int]:
    """Positions of the measures, the costliest first."""
    total = values.sum("step")
    return sorted(range(total.size), key=lambda i: -float(total[i]))


def _measures(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        values = variable(tree, "overhead/seconds")
        if values is None or "measure" not in values.dims:
            return {}, {}
        names, order = names_along(values, "measure"), _by_cost(values)
        lines = {names[i]: values.isel(measure=i) for i in order[:COSTLIEST]}
        if len(order) > COSTLIEST:
            lines["all others together"] = values.isel(measure=order[COSTLIEST:]).sum("measure")
        return lines, {"y": "seconds a step", "log": True}

    panel = lines_panel(
        trees,
        draw,
        name="measures",
        title="Which measures took the time?",
        reading="One line for each of the costliest measures. A reading that several measures share is counted at the "
        "first that asks for it.",
        misleads="The first step of a run pays for warming up.",
        null="There is no null for time.",
    )
    if panel is None:
        return None
    rows = []
    for run, tree in trees.items():
        values = variable(tree, "overhead/seconds")
        if values is not None and "measure" in values.dims:
            total = values.sum("step")
            rows += [
                (
                    run,
                    names_along(values, "measure")[i],
                    seconds_in_words(float(total[i])),
                    last(values.isel(measure=i)),
                )
                for i in _by_cost(values)
            ]
    table = run_table(trees, ("run", "measure", "all steps together", "last step, seconds"), rows)
    # an instrument that was left out of a step took no time there: nothing to say about steps between
    return replace(panel, table=table, notes=())
