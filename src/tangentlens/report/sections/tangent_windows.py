"""Looking back: how each family grew in the very modes that carry it at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from tangentlens.report.blocks import block_span, carried_families, chance_of_a_mode
from tangentlens.report.figures.curves import Null
from tangentlens.report.labelled import names_along, variable
from tangentlens.report.section import Panel
from tangentlens.report.sections.facets import Lines, Trees, lines_panel
from tangentlens.report.sections.training import accuracy_marks
from tangentlens.report.words import is_number


def windows_panel(trees: Trees) -> Panel | None:
    """Each family's share in a fixed window of modes, the block that holds most of it at the last step."""
    return lines_panel(
        trees,
        _draw,
        name="windows",
        title="How did each feature grow?",
        reading="The block that carries a family at the end is held fixed, and the family is followed in it from the "
        "first step on: where the line is steepest, the feature is being learned.",
        misleads="It needs hindsight: the modes are chosen by the finished run. Before the block exists its place in "
        "the spectrum holds other modes.",
        null="Grey dashed: what as many random modes hold, the largest over the families; not drawn where it was not "
        "recorded.",
    )


def _draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
    share, lines, widths = variable(tree, "tangent/share"), {}, []
    if share is None or not {"mode", "family"} <= set(share.dims):
        return {}, {}
    names = names_along(share, "family")
    for one in carried_families(tree):
        span = block_span(tree, int(one.block.values[-1]))
        if span is not None and one.family in names and span[1] <= share.sizes["mode"]:
            window = share.isel(family=names.index(one.family), mode=slice(*span))
            modes = f"modes {span[0] + 1}–{span[1]}" if span[1] - span[0] > 1 else f"mode {span[1]}"
            lines[f"{one.family}, {modes}"] = window.sum("mode")
            widths.append(span[1] - span[0])
    each = chance_of_a_mode(tree)
    nulls = [Null("chance", float(np.max(widths) * each))] if widths and is_number(each) else []
    options = {"y": "share of the family's space", "share": True, "range_y": (-0.02, 1.04), "nulls": nulls}
    return lines, {**options, "marks": accuracy_marks(tree)}
