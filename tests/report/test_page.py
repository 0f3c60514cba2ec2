"""The page as text and data: what it holds, what it never asks for, and that odd records do not break it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr

from tangentlens.report import write_report
from tangentlens.report.facts import facts
from tangentlens.report.opening import open_runs
from tangentlens.report.page import STATIC_POLICY, html, page_parts
from tangentlens.report.sections import forward, sections_of, tangent, training
from tests.report.records import STEPS, record

INSTRUMENTS = ("training", "tangent", "forward", "ansatz", "tokens", "overhead")


FEW = np.array([0, 10, 40, 80, 120, 500])


@pytest.fixture(scope="module")
def whole() -> xr.DataTree:
    return record()


@pytest.fixture(scope="module")
def pair() -> list[xr.DataTree]:
    return [record(steps=FEW), record(title="control", rich=False, seed=3, steps=FEW)]


@pytest.fixture(scope="module")
def page(whole: xr.DataTree, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(whole, tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


def without_plotly(page: str) -> str:
    return re.sub(r"<script>\s*/\*\*\s*\* plotly\.js.*?</script>", "", page, flags=re.S)


def test_every_instrument_of_the_record_has_a_section(page: str) -> None:
    for name in INSTRUMENTS:
        assert f'<section id="{name}"' in page


def test_the_page_names_no_address_outside_of_itself(page: str) -> None:
    own = without_plotly(page)
    assert len(own) < len(page) - 1_000_000, "plotly's script is inlined"
    assert not re.search(r"(https?:)?//[a-z]", own.replace("// ", ""))
    assert '<link rel="icon" href="data:,">' in own
    assert own.count("<link") == 1 and "<img" not in own and "@import" not in own and "url(" not in own


def test_the_page_forbids_itself_every_connection(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert (
        policy
        and "default-src 'none'" in policy[1]
        and "connect-src" not in policy[1]
        and "form-action 'none'" in policy[1]
    )


def test_every_panel_has_a_reading_a_caution_a_null_and_a_table(whole: xr.DataTree) -> None:
    for section in sections_of({"run": whole}):
        assert section.question.endswith("?")
        for panel in section.panels:
            where = f"{section.name}/{panel.name}"
            assert all(len(text) > 10 for text in (panel.reading, panel.misleads, panel.null)), where
            assert panel.table.rows and all(len(row) == len(panel.table.columns) for row in panel.table.rows), where
            assert panel.figures, where


def test_figures_in_the_page_are_figures_plotly_accepts(page: str) -> None:
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)
    assert data
    figures = json.loads(data[1])
    places = set(re.findall(r'class="plot" id="([^"]+)"', page))
    assert places == set(figures) and len(figures) > 25
    for figure in figures.values():
        go.Figure(data=figure["data"], layout=figure["layout"], frames=figure.get("frames"))


def test_text_of_a_record_cannot_become_markup_or_script(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!-- <script>"
    tree = record(title=evil, layers=[evil, "net.2", "head"], steps=FEW)
    tree.attrs["settings"] = evil
    text = without_plotly(write_report(tree, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "<script>alert" not in text and "<!--" not in text

    class Scripts(HTMLParser):
        count = 0

        def handle_starttag(self, tag: str, attributes: object) -> None:
            self.count += tag == "script"

    parser = Scripts()
    parser.feed(text)
    assert parser.count == 2  # the figures and the page's own script


def test_several_runs_are_laid_over_each_other_and_side_by_side(pair: list[xr.DataTree]) -> None:
    parts = page_parts(open_runs(pair))
    assert html(parts, STATIC_POLICY, scripts=("page.js",)).count("* plotly.js v") == 1
    assert {"training-accuracy-0", "training-accuracy-1"} <= set(parts.figures)
    assert 'id="comparison"' in parts.words and 'class="differs"' in parts.words
    overlaid = json.loads(parts.figures["comparison-forward-richness-0"])
    assert [trace["name"] for trace in overlaid["data"]] == ["modular addition", "control"]


def test_runs_of_one_name_are_told_apart(whole: xr.DataTree) -> None:
    assert [run.name for run in open_runs([whole, whole, whole])] == [
        "modular addition",
        "modular addition (2)",
        "modular addition (3)",
    ]


def test_figures_side_by_side_share_their_axes(pair: list[xr.DataTree]) -> None:
    (panel,) = [
        panel for panel in training.section(dict(zip("ab", pair, strict=True))).panels if panel.name == "travel"
    ]
    assert panel.figures["a"].layout.yaxis.range == panel.figures["b"].layout.yaxis.range is not None


def test_a_record_of_one_step_is_shown_without_a_slider(tmp_path: Path) -> None:
    text = without_plotly(write_report(record(steps=np.array([7])), tmp_path / "r.html").read_text(encoding="utf-8"))
    assert 'class="stepper"' not in text and 'id="tangent"' in text


def test_a_record_of_training_alone_is_shown(tmp_path: Path) -> None:
    data = xr.Dataset({"loss": ("step", [1.0, 0.5, 0.1])}, coords={"step": [0, 1, 2]})
    text = write_report(xr.DataTree.from_dict({"/training": data}), tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'id="training"' in text and 'id="tangent"' not in text and "loss went from 1 to 0.1" in text


def test_an_empty_record_says_that_nothing_is_there_yet(tmp_path: Path) -> None:
    text = write_report(xr.DataTree(), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Nothing has been recorded yet" in text and "Too little was recorded for a verdict" in text


@pytest.mark.parametrize("group", ["training", "tangent", "forward", "ansatz", "tokens"])
def test_each_instrument_alone_is_enough_for_a_page(group: str, pair: list[xr.DataTree]) -> None:
    alone = xr.DataTree.from_dict({"/": pair[0].to_dataset(), f"/{group}": pair[0][group].to_dataset()})
    assert f'id="{group}"' in page_parts(open_runs(alone)).words


def test_measures_that_all_failed_leave_a_page_without_numbers(whole: xr.DataTree) -> None:
    nothing = whole.map_over_datasets(lambda data: data.where(False) if data.data_vars else data)
    parts = page_parts(open_runs(nothing))
    assert "NaN" not in parts.words and "nan" not in re.sub(r"[a-z]+nan|nan[a-z]+", "", parts.words)


def test_gaps_in_a_record_stay_gaps_in_the_figures(whole: xr.DataTree) -> None:
    seen = xr.DataArray(np.random.default_rng(0).random(len(STEPS)) > 0.5, dims="step", coords={"step": STEPS})
    holes = whole.map_over_datasets(lambda data: data.where(seen) if data.data_vars else data)
    panel = next(panel for panel in training.section({"run": holes}).panels if panel.name == "travel")
    (norm, _) = panel.figures["run"].data
    assert list(norm.customdata) == STEPS[seen.values].tolist(), "steps that were not measured are left out"


def test_very_many_layers_with_very_long_names_are_shown(tmp_path: Path) -> None:
    layers = [
        f"model.decoder.layers.{i}.self_attention.query_key_value_projection_with_a_long_name.weight" for i in range(60)
    ]
    file = write_report(record(layers=layers, steps=FEW[:3]), tmp_path / "r.html")
    text = without_plotly(file.read_text(encoding="utf-8"))
    assert layers[57] in text, "the table holds every layer under its whole name"
    assert "Figures for the first 8 of 60 layers" in text
    assert len(text) < 25_000_000


def test_a_users_own_group_is_shown_from_its_labels(whole: xr.DataTree) -> None:
    own = xr.Dataset(
        {
            "sharpness": (
                "step",
                np.linspace(1, 9, 18),
                {"question": "How sharp is the minimum?", "null": "sharpness_null"},
            ),
            "sharpness_null": ("step", np.ones(18)),
            "by_head": (("step", "layer", "unit"), np.ones((18, 3, 5))),
            "deep": (("step", "layer", "unit", "mode"), np.ones((18, 3, 5, 2))),
        },
        coords={"step": STEPS, "layer": ["x", "y", "z"]},
    )
    parts = page_parts(open_runs(xr.DataTree.from_dict({"/curvature": own})))
    assert "How sharp is the minimum?" in parts.words and "curvature-by_head-0" in parts.figures
    drawn = json.loads(parts.figures["curvature-sharpness-0"])
    assert [trace["name"] for trace in drawn["data"]] == ["under the null", "sharpness"]
    assert "curvature-sharpness_null-0" not in parts.figures, "a reference is drawn with what it refers to"
    assert "deep (step, layer, unit, mode) has too many axes for a figure." in parts.words


def test_a_long_dense_record_stays_a_page_that_can_be_mailed(tmp_path: Path) -> None:
    file = write_report(record(steps=np.arange(600), modes=800), tmp_path / "r.html")
    text = file.read_text(encoding="utf-8")
    assert file.stat().st_size < 40_000_000
    assert "thinning the tail" in text and "The slider holds 40 of 600 recorded steps." in text


def test_the_record_is_not_changed_by_being_shown(whole: xr.DataTree, page: str) -> None:
    assert page
    assert whole.identical(record())


def without_cliffs(tree: xr.DataTree, steps: int) -> xr.DataTree:
    """A copy whose spectrum has no cliff at its first or last steps (a negative number)."""
    copy = tree.copy(deep=True)
    data = copy["tangent"].to_dataset()
    here = np.arange(data.sizes["step"])
    there = xr.DataArray(here >= steps if steps >= 0 else here < len(here) + steps, dims="step")
    blocks = [name for name, values in data.data_vars.items() if "block" in values.dims]
    copy["tangent"] = data.assign({name: data[name].where(there) for name in blocks})
    return copy


def test_a_spectrum_without_cliffs_is_said_to_have_none(whole: xr.DataTree) -> None:
    def finding(tree: xr.DataTree) -> str:
        return next(panel for panel in tangent.section({"run": tree}).panels if panel.name == "spectrum").finding

    assert finding(without_cliffs(whole, 1)) == "Cliffs after modes 1, 57, 113 at step 500; at step 0 no cliff."
    assert finding(without_cliffs(whole, -1)) == "No cliff at step 500; at step 0 after modes 1, 57."
    assert finding(without_cliffs(whole, len(STEPS))) == "No cliff at step 500; at step 0 none either."


def test_families_that_were_named_are_not_said_to_be_unnamed(whole: xr.DataTree) -> None:
    (said,) = tangent.section({"run": without_cliffs(whole, len(STEPS))}).absent
    assert said.startswith("Families were named (a, b, a+b and a−b), but the spectrum has no cliff")
    assert tangent.section({"run": whole}).absent == ()


def test_a_line_through_few_of_the_steps_says_so(whole: xr.DataTree) -> None:
    copy = whole.copy(deep=True)
    copy["forward"] = copy["forward"].to_dataset().where(xr.DataArray(np.isin(STEPS, [0, 500]), dims="step"))
    notes = {panel.name: panel.notes for panel in forward.section({"run": copy}).panels}
    assert "Measured at 2 of 18 recorded steps; at the others" in " ".join(notes["richness"])
    assert not any(
        "recorded steps" in note for panel in training.section({"run": whole}).panels for note in panel.notes
    )


def test_a_table_is_not_shortened_by_a_few_rows() -> None:
    ten = record(steps=np.arange(10))
    (panel,) = [panel for panel in training.section({"run": ten}).panels if panel.name == "travel"]
    assert len(panel.table.rows) == 10 and not panel.table.note


def test_times_and_costs_do_not_stand_out_as_differences(pair: list[xr.DataTree]) -> None:
    other = pair[0].copy(deep=True)
    other.attrs |= {"updated": "2025-02-01T10:00:00+00:00", "overhead": 0.5, "device": "cuda"}
    rows = re.findall(r"<tr( class=\"differs\")?><th scope='row'>(\w+)", page_parts(open_runs([pair[0], other])).words)
    assert [name for mark, name in rows if mark] == ["device"]


def test_the_facts_say_how_gradients_were_reached_in_words(whole: xr.DataTree) -> None:
    copy = whole.copy(deep=True)
    copy.attrs["rungs"] = json.dumps({"a": "rule", "b": "rule", "c": "loop"})
    said = facts(copy)["gradients"]
    assert said == "2 parameters by their layers' own formula, 1 parameters by one gradient after the other"


def test_runs_are_compared_whatever_they_called_their_numbers(pair: list[xr.DataTree]) -> None:
    other = pair[1].copy(deep=True)
    data = other["training"].to_dataset()
    other["training"] = data.rename({"test_accuracy": "val_acc", "train_accuracy": "acc", "loss": "train_loss"})
    parts = page_parts(open_runs([pair[0], other]))
    assert {f"comparison-training-{name}-0" for name in ("test_accuracy", "train_accuracy", "loss")} <= set(
        parts.figures
    )
