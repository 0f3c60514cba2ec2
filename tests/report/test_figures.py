"""Figures are data, and are tested as data."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from tangentlens.report.blocks import first_learned_cliff
from tangentlens.report.figures.clouds import cloud
from tangentlens.report.figures.curves import Null, curves
from tangentlens.report.figures.decay import decay
from tangentlens.report.figures.maps import step_map
from tangentlens.report.figures.steps import FRAMES, NUMBERS, slider_positions, step_axis, thinned, thinned_modes
from tangentlens.report.sections import ansatz, forward, tangent, tokens
from tangentlens.report.sections.facets import share_range
from tests.report.records import BLOCK, STEPS, record


def line(values: list[float], steps: list[int]) -> xr.DataArray:
    return xr.DataArray(np.array(values), dims="step", coords={"step": steps})


def test_a_curve_holds_the_recorded_values_at_their_steps() -> None:
    figure = curves({"loss": line([3.0, 2.0, 1.0], [0, 5, 9])}, y="loss")
    (trace,) = figure.data
    assert list(trace.x) == [0, 5, 9] and list(trace.y) == [3.0, 2.0, 1.0] and figure.layout.yaxis.title.text == "loss"


def test_a_line_through_few_steps_lies_on_the_axis_of_all_recorded_ones() -> None:
    few, recorded = {"a": line([1.0, 2.0], [0, 1000])}, [0, 1, 2, 4, 8, 16, 1000]
    alone, among = curves(few, y="a"), curves(few, y="a", steps=recorded)
    assert (alone.layout.xaxis.type, among.layout.xaxis.type) == (None, "log")
    assert list(among.data[0].customdata) == [0, 1000] and list(among.data[0].x) == [0.5, 1000]


def test_a_missing_value_breaks_the_line_and_is_not_bridged() -> None:
    (trace,) = curves({"a": line([1.0, float("nan"), 3.0], [0, 1, 2])}, y="a").data
    assert np.isnan(trace.y[1]) and trace.connectgaps is False


def test_a_null_is_drawn_in_grey_under_the_lines() -> None:
    null = Null("chance", 0.1, line([0.0, 0.0], [0, 9]), line([0.2, 0.2], [0, 9]))
    band, level, value = curves({"a": line([0.5, 0.9], [0, 9])}, y="a", nulls=[null]).data
    assert level.line.color == "#8A8F98" and level.line.dash == "dash" and list(level.y) == pytest.approx([0.1, 0.1])
    assert band.fill == "toself" and value.name == "a"


def test_log_spaced_steps_lie_on_a_logarithm_with_step_zero_named() -> None:
    axis = step_axis([0, 1, 2, 4, 8, 16, 64, 256, 1024])
    assert axis.log and axis.places([0])[0] == 0.5 and axis.layout["ticktext"][0] == "0"
    assert not step_axis(list(range(0, 1000, 10))).log


def test_a_slider_holds_few_steps_and_the_ends_among_them() -> None:
    positions = slider_positions(5000, 100)
    assert len(positions) <= FRAMES and positions[0] == 0 and positions[-1] == 4999
    assert len(slider_positions(5000, 100_000)) * 100_000 <= NUMBERS


def test_thinning_keeps_the_largest_modes_one_by_one() -> None:
    kept = thinned_modes(100_000, 600)
    assert list(kept[:300]) == list(range(300)) and kept[-1] == 99_999 and len(kept) <= 600
    assert list(thinned(3, 10)) == [0, 1, 2]


def test_a_spectrum_moves_through_its_steps_with_its_cliffs() -> None:
    values = np.array([[4.0, 1.0, 0.5], [40.0, 10.0, 0.5]])
    figure = decay({"eigenvalues": values}, [0, 9], y="eigenvalue", gaps={1: (2,)})
    assert [frame.name for frame in figure.frames] == ["0", "9"]
    assert list(figure.frames[0].data[0].y) == [4.0, 1.0, 0.5] and list(figure.data[0].y) == [40.0, 10.0, 0.5]
    assert len(figure.frames[0].layout.shapes) == 0 and figure.frames[1].layout.shapes[0].x0 == 2.5


def test_a_spectrum_on_a_logarithm_leaves_out_what_is_not_positive() -> None:
    (trace,) = decay({"e": np.array([[1.0, 0.0, -1e-9]])}, [0], y="e").data
    assert np.isfinite(trace.y).tolist() == [True, False, False]


def test_maps_keep_one_colour_scale_over_all_steps() -> None:
    figure = step_map(
        np.stack([np.zeros((2, 3)), np.full((2, 3), 5.0)]), [0, 1], ["a", "b"], [1, 2, 3], x="mode", y="f", colour="c"
    )
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0.0, 5.0) and len(figure.frames) == 2


def test_a_cloud_names_each_dot_and_keeps_its_place_over_steps() -> None:
    figure = cloud(np.array([0.1, 0.9]), np.array([[0.0, 0.0], [-1.0, 1.0]]), [0, 3], ["bad", "good"], x="x", y="y")
    assert list(figure.data[0].text) == ["bad", "good"] and list(figure.frames[0].data[0].y) == [0.0, 0.0]


def test_the_spectrum_section_marks_the_recorded_cliffs() -> None:
    panel = tangent.section({"run": record()}).panels[0]
    shapes = panel.figures["run"].frames[-1].layout.shapes
    assert [shape.x0 for shape in shapes] == [1.5, 1 + BLOCK + 0.5, 1 + 2 * BLOCK + 0.5]
    assert panel.finding == "Cliffs after modes 1, 57, 113 at step 500; at step 0 after 1, 57."


def test_the_spectrum_section_says_which_cliffs_were_learned_and_since_when() -> None:
    tree = record()
    ends = tree["tangent"]["block_last"].values
    learned = np.where(np.isnan(ends), np.nan, ends == 1 + 2 * BLOCK)
    data = tree["tangent"].to_dataset().assign(cliff_learned=(("step", "block"), learned))
    panel = tangent.section({"run": xr.DataTree.from_dict({"/tangent": data})}).panels[0]
    second = STEPS[np.flatnonzero(np.isfinite(ends[:, 2]))[1]]
    assert panel.finding.endswith(f"One that the initial network lacks has held since step {second}.")
    assert [row[-1] for row in panel.table.rows] == ["there", "there", "no cliff there"]


def test_two_different_cliffs_in_a_row_are_not_one_that_held() -> None:
    ends = np.array([[10.0], [20.0], [20.0]])
    data = xr.Dataset(
        {"block_last": (("step", "block"), ends), "cliff_learned": (("step", "block"), np.ones_like(ends))},
        coords={"step": [0, 5, 10]},
    )
    assert first_learned_cliff(xr.DataTree.from_dict({"/tangent": data})) == 10


def test_a_family_is_followed_in_the_window_of_modes_that_carries_it_at_the_end() -> None:
    tree = record()
    panel = next(panel for panel in tangent.section({"run": tree}).panels if panel.name == "windows")
    drawn = {trace.name: np.asarray(trace.y) for trace in panel.figures["run"].data}
    recorded = tree["tangent"]["share"].values[:, 1 + BLOCK : 1 + 2 * BLOCK, 2].sum(1)
    np.testing.assert_allclose(drawn["a+b, modes 58–113"], recorded, rtol=1e-6)
    assert drawn["chance"][0] == pytest.approx(BLOCK / 841)


def test_the_ansatz_is_drawn_beside_its_null_in_every_layer() -> None:
    panel = ansatz.section({"run": record()}).panels[0]
    assert list(panel.figures) == ["layer net.0", "layer net.2", "layer head"]
    for figure in panel.figures.values():
        names = [trace.name for trace in figure.data]
        assert {"the weights (UC)", "their change (C)", "UC by chance", "C by chance"} <= set(names)


def test_weights_and_sensitivity_share_one_scale() -> None:
    figures = next(panel for panel in ansatz.section({"run": record()}).panels if panel.name == "matrices").figures
    ends = [
        (figures[f"net.0: {word}"].data[0].zmin, figures[f"net.0: {word}"].data[0].zmax) for word in ("WᵀW", "AGOP")
    ]
    assert ends[0] == ends[1]


def test_richness_is_drawn_with_every_level_the_record_names() -> None:
    figure = forward.section({"run": record()}).panels[0].figures["run"]
    names = {trace.name for trace in figure.data}
    assert {"D_LR", "D_LR, robust convention", "initial network", "isotropic features", "random head"} <= names


def test_tokens_are_placed_by_the_recorded_co_occurrence() -> None:
    tree = record()
    figure = tokens.section({"run": tree}).panels[0].figures["positive"]
    dots = {
        name: (x, y)
        for trace in figure.data
        if trace.text is not None
        for name, x, y in zip(trace.text, trace.x, trace.y, strict=True)
    }
    group = tree["tokens"]
    counted = group["cooccurrence"].values[7]
    assert dots["word7"][0] == pytest.approx(counted[1] / counted.sum(), rel=1e-6)
    assert dots["word7"][1] == pytest.approx(float(group["label_scores"][-1, 7, 1]), rel=1e-6)


def test_every_figure_of_every_section_is_coloured_for_colour_blind_readers() -> None:
    allowed = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8F98"}
    for module in (tangent, forward, ansatz, tokens):
        for panel in module.section({"run": record()}).panels:
            for figure in panel.figures.values():
                for trace in figure.data:
                    if trace.type == "heatmap":
                        assert trace.colorscale is not None
                    elif trace.line.color is not None and not trace.line.color.startswith("rgb"):
                        assert trace.line.color in allowed | {"#00224E"}, (panel.name, trace.line.color)


def test_the_steps_of_the_record_are_the_steps_of_its_slider() -> None:
    figure = tangent.section({"run": record()}).panels[0].figures["run"]
    assert [int(frame.name) for frame in figure.frames] == STEPS.tolist()


def test_a_logarithm_over_few_decades_has_ticks_between_its_powers() -> None:
    axis = curves({"loss": line([0.035, 0.02, 0.007], [0, 5, 9])}, y="loss", log=True).layout.yaxis
    assert {0.01, 0.02, 0.05} <= set(axis.tickvals) and "0.02" in axis.ticktext
    wide = curves({"loss": line([1.0, 1e-5], [0, 9])}, y="loss", log=True).layout.yaxis
    assert wide.tickvals is None and wide.dtick == 1
    round_off = curves({"drift": line([8e-15, 0.5], [0, 9])}, y="drift", log=True).layout.yaxis
    assert round_off.dtick == 2, "fourteen powers of ten run into each other in a low figure"


def test_a_logarithm_leaves_out_what_it_has_no_place_for() -> None:
    (trace,) = curves({"a": line([0.0, 0.1, 1.0], [0, 1, 2])}, y="a", log=True).data
    assert np.isnan(trace.y[0]) and trace.y[2] == 1.0


def test_a_range_of_shares_ends_where_all_runs_do() -> None:
    tree = record()
    assert share_range({"a": tree}, "tangent/kernel_drift") == pytest.approx((-0.03, 1.03))
    low = record(rich=False)
    assert share_range({"a": low}, "tangent/kernel_drift") == pytest.approx((-0.0015, 0.0515))
    assert share_range({"a": low, "b": tree}, "tangent/kernel_drift") == pytest.approx((-0.03, 1.03))


def test_blocks_no_step_has_are_not_drawn() -> None:
    tree = record()
    seen = int(np.isfinite(tree["tangent"]["overlap"].values).any(axis=(0, 2)).sum())
    panel = next(panel for panel in tangent.section({"run": tree}).panels if panel.name == "blocks")
    assert list(panel.figures["run"].data[0].x) == [f"block {i + 1}" for i in range(seen)]
    assert any("%" in str(cell) for cell in panel.table.rows[0])
