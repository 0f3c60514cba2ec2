"""Which features does the network use? The modes of its tangent kernel, and the named families they span."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.blocks import carried_families, chance_of_a_mode, cliffs, first_learned_cliff, learned_cliffs
from tangentlens.report.figures.curves import Null
from tangentlens.report.figures.decay import MODES, decay
from tangentlens.report.labelled import names_along, steps_of, variable
from tangentlens.report.section import Panel, Section
from tangentlens.report.sections.facets import Lines, Trees, last_of, lines_panel, per_run, run_table, said
from tangentlens.report.sections.tangent_maps import mode_feature_panel, overlap_map_panel
from tangentlens.report.sections.tangent_motion import motion_panels
from tangentlens.report.sections.tangent_windows import windows_panel
from tangentlens.report.sections.training import accuracy_marks
from tangentlens.report.words import is_number, listed, percent


def present(tree: xr.DataTree) -> bool:
    return "tangent" in tree.children and len(tree["tangent"].data_vars) > 0


def section(trees: Trees) -> Section:
    panels = [
        _spectrum(trees),
        _families(trees),
        windows_panel(trees),
        overlap_map_panel(trees),
        _captured(trees),
        mode_feature_panel(trees),
        *motion_panels(trees),
    ]
    absent = () if any(carried_families(tree) for tree in trees.values()) else (_why_unnamed(trees),)
    return Section(
        "tangent",
        "Tangent features",
        "Along which directions can the network still change most easily, and which known features do they span?",
        tuple(panel for panel in panels if panel),
        absent,
    )


def _why_unnamed(trees: Trees) -> str:
    found = [values for tree in trees.values() if (values := variable(tree, "tangent/share")) is not None]
    if not found:
        return "No families of features were named when this run was recorded, so its modes stay unnamed."
    families = dict.fromkeys(name for values in found for name in names_along(values, "family"))
    return (
        f"Families were named ({listed(families)}), but the spectrum has no cliff at any recorded step: without blocks "
        "there is nothing to say which of them carries a family. What single modes hold of each is shown."
    )


def _spectrum(trees: Trees) -> Panel | None:
    def figure(tree: xr.DataTree) -> go.Figure | None:
        values = variable(tree, "tangent/eigenvalues")
        if values is None:
            return None
        counts = cliffs(tree)
        gaps = {i: counts.get(step, ()) for i, step in enumerate(steps_of(values))}
        start = {"first recorded step": values.values[0]} if values.sizes["step"] > 1 else {}
        return decay({"eigenvalues": values}, steps_of(values), y="eigenvalue", references=start, gaps=gaps)

    figures = per_run(trees, figure)
    if not figures:
        return None
    rows = [(run, *row) for run in figures for row in _cliff_rows(trees[run])]
    table = run_table(trees, ("run", "modes above", "size of the gap", "gap called a cliff from", "at the start"), rows)
    modes = max(variable(trees[run], "tangent/eigenvalues").sizes["mode"] for run in figures)  # type: ignore[union-attr]
    notes = (f"Of {modes:,} recorded modes the figure draws {MODES:,}, thinning the tail.",) if modes > MODES else ()
    return Panel(
        "spectrum",
        "Where does the spectrum break?",
        figures,
        "Modes above a cliff form a block: directions of nearly equal strength that belong together. "
        "Blocks that are not there in the grey line were made by training; the table says which cliffs the initial "
        "network lacks.",
        "A cliff can be a property of the inputs alone (one-hot inputs have one before any training), and inside a "
        "block single modes are arbitrary: only their span means something.",
        "Grey dashed: the first recorded step. Dotted vertical lines: detected cliffs, labelled by the modes above "
        "them; a gap is called a cliff only when it exceeds its null, given in the table.",
        table,
        said(trees, _cliff_finding),
        notes,
    )


def _cliff_rows(tree: xr.DataTree) -> list[tuple[Any, ...]]:
    """Each cliff at the last step, its size, and the size from which a gap is called one."""
    ends = variable(tree, "tangent/block_last")
    counts = cliffs(tree)
    if not counts:
        return [("no blocks were recorded", None, None, "–")]
    last_step = list(counts)[-1]
    if ends is None or not counts[last_step]:
        return [("none detected", None, last_of(tree, "tangent/cliff_null"), "–")]
    sizes, null = (variable(tree, f"tangent/{name}") for name in ("cliff_ratio", "cliff_null"))
    learned = learned_cliffs(tree)
    rows = []
    for block, count in enumerate(counts[last_step]):
        beside = (None if values is None else _at_block(values, last_step, block) for values in (sizes, null))
        made = (
            ("no cliff there" if count in learned[last_step] else "there") if last_step in learned else "not recorded"
        )
        rows.append((count, *beside, made))
    return rows


def _at_block(values: xr.DataArray, step: int, block: int) -> float | None:
    if step not in steps_of(values):
        return None
    row = values.isel(step=steps_of(values).index(step))
    return float(row.isel(block=block)) if "block" in row.dims else float(row)


def _cliff_finding(tree: xr.DataTree) -> str:
    counts = cliffs(tree)
    if not counts:
        return ""
    steps = list(counts)
    ends, begins = (", ".join(map(str, counts[step])) for step in (steps[-1], steps[0]))
    found = f"Cliffs after modes {ends} at step {steps[-1]:,}" if ends else f"No cliff at step {steps[-1]:,}"
    if len(steps) > 1:
        before = f"after {'' if ends else 'modes '}{begins}" if begins else "no cliff" if ends else "none either"
        found = f"{found}; at step {steps[0]:,} {before}"
    found = f"{found}."
    since = first_learned_cliff(tree)
    return found if since is None else f"{found} One that the initial network lacks has held since step {since:,}."


def _families(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        found = carried_families(tree)
        nulls = []
        if found:
            levels = xr.concat([one.chance for one in found], "family", coords="minimal", compat="override")
            nulls.append(Null("chance", levels.max("family")))
        options = {"y": "share of the family's space", "share": True, "range_y": (-0.02, 1.04), "nulls": nulls}
        return {one.family: one.overlap for one in found}, {**options, "marks": accuracy_marks(tree)}

    return lines_panel(
        trees,
        draw,
        name="families",
        title="When does each feature appear?",
        finding=_family_finding,
        reading="Each line is one family of features: how much of its space lies in the block of modes that holds "
        "most of it. A line that rises during training is a feature that was learned; one that starts high "
        "came with the inputs.",
        misleads="Families can overlap each other, and a family nobody named cannot show up. Blocks are detected "
        "anew at each step, so a line may change block.",
        null=(
            "Grey dashed: what a random block of the same size holds (its modes over the examples), the largest over "
            "the families."
        ),
    )


def _family_finding(tree: xr.DataTree) -> str:
    parts = []
    for one in carried_families(tree):
        value, chance = float(one.overlap.values[-1]), float(one.chance.values[-1])
        parts.append(f"{one.family} {percent(value)} (chance {percent(chance)})")
    return "At the end: " + ", ".join(parts) + "." if parts else ""


def _captured(trees: Trees) -> Panel | None:
    def figure(tree: xr.DataTree) -> go.Figure | None:
        values = variable(tree, "tangent/captured")
        if values is None:
            return None
        lines = {name: values.isel(family=i) for i, name in enumerate(names_along(values, "family"))}
        one = chance_of_a_mode(tree)
        chance = {"chance": one * np.arange(1, values.sizes["mode"] + 1)} if is_number(one) else {}
        return decay(
            lines,
            steps_of(values),
            y="share of the family's space",
            references=chance,
            log=False,
            log_x=False,
            range_y=(-0.02, 1.04),
            x="modes taken from the top",
            share=True,
        )

    figures = per_run(trees, figure)
    if not figures:
        return None
    rows = []
    for run in figures:
        values = variable(trees[run], "tangent/captured")
        assert values is not None  # a figure was drawn from it
        for i, family in enumerate(names_along(values, "family")):
            rows.append((run, family, *(_modes_for(values.values[-1, :, i], share) for share in (0.5, 0.9))))
    table = run_table(trees, ("run", "family", "modes to hold 50 %", "modes to hold 90 %"), rows)
    return Panel(
        "captured",
        "How many modes does each family need?",
        figures,
        "Take modes from the strongest down: a line that jumps to the top early belongs to a feature the kernel is "
        "built from; one along the chance line is not represented.",
        "With as many modes as examples every line reaches 100 %: read the left of the figure.",
        "Grey dashed: a random subspace of as many modes holds modes / examples; not drawn where that was not "
        "recorded.",
        table,
    )


def _modes_for(captured: np.ndarray, share: float) -> int | str:
    reached = np.flatnonzero(captured >= share)
    return int(reached[0]) + 1 if reached.size else f"more than {captured.size:,}"
