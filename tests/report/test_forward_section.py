"""The section on forward features: quality held out is drawn and listed, the baselines of a run stand together."""

from __future__ import annotations

import numpy as np
import xarray as xr

from tangentlens.report.section import Panel
from tangentlens.report.sections import forward
from tests.report.records import record


def panel(tree: xr.DataTree, name: str) -> Panel:
    return next(panel for panel in forward.section({"run": tree}).panels if panel.name == name)


def with_held_out(tree: xr.DataTree) -> xr.DataTree:
    data = tree["forward"].to_dataset().copy()
    curve = data["cumulative_quality"] * 0.6 - 0.1
    curve.attrs = {}
    data["cumulative_quality"].attrs["held_out"] = "cumulative_quality_held_out"
    data["cumulative_quality_held_out"] = curve.where(data["cumulative_quality"]["mode"] < 100)
    tree["forward"] = xr.DataTree(data)
    return tree


def test_quality_held_out_is_a_grey_line_and_a_row_beside_the_quality_in_sample() -> None:
    drawn = panel(with_held_out(record()), "curves")
    figure = next(figure for name, figure in drawn.figures.items() if "quality" in name)
    line = next(trace for trace in figure.data if trace.name == "held out")
    finite = np.asarray(line.y, dtype=float)[np.isfinite(np.asarray(line.y, dtype=float))]
    assert finite[0] < 0.1 and finite[-1] < 0.55
    rows = {row[0]: row for row in ((row if len(row) == 4 else row[1:]) for row in drawn.table.rows)}
    assert "cumulative quality, held out" in rows and rows["cumulative quality, held out"][2] == "not reached"
    assert "held out" not in {trace.name for trace in panel(record(), "curves").figures[next(iter(drawn.figures))].data}


def test_the_baselines_hold_the_tangent_kernels_change_and_the_norm_over_its_start() -> None:
    (figure,) = panel(record(), "baselines").figures.values()
    lines = {trace.name: np.asarray(trace.y, dtype=float) for trace in figure.data}
    assert {"change of the tangent kernel", "relative norm"} <= set(lines)
    norm = record()["training/parameter_norm"].values
    assert np.allclose(lines["relative norm"], norm / norm[0], rtol=1e-5)
