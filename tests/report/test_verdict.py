"""The verdict says what the recorded values say, with the rule, and no more than the record holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from tangentlens.report import verdict
from tangentlens.report.sections import tokens
from tangentlens.report.sections.ansatz_matrices import alignment_panel
from tangentlens.report.verdict import Evidence
from tests.report.records import STEPS, record


def changed(tree: xr.DataTree, path: str, values: object) -> xr.DataTree:
    """A copy of a record in which one variable holds other values."""
    group, name = path.split("/")
    copy = tree.copy(deep=True)
    data = copy[group].to_dataset()
    data[name] = (data[name] * 0 + values).assign_attrs(data[name].attrs)
    copy[group] = data
    return copy


def part(tree: xr.DataTree, about: str) -> Evidence:
    return next(evidence for evidence in verdict(tree).evidence if evidence.about == about)


def test_a_grokking_record_is_called_rich_and_grokked_with_its_steps() -> None:
    said = verdict(record())
    assert said.sentence.startswith(
        "Rich; grokked, fitting by step 40 and generalising at step 120; features of a+b and a−b appear at step 80"
    )
    assert "those of a and b were there before training" in said.sentence


def test_a_lazy_memorising_record_is_called_that() -> None:
    said = verdict(record(rich=False))
    assert said.sentence.startswith(
        "Lazy; fitted by step 40, and never generalised: memorised; features of a and b were there before training"
    )
    assert (
        "a+b and a−b are not carried" in said.sentence
        and "no layer's weights align clearly beyond chance" in said.sentence
    )


def test_every_part_states_its_numbers_and_its_rule() -> None:
    for evidence in verdict(record()).evidence:
        assert any(character.isdigit() for character in evidence.rests_on), evidence
        assert evidence.rule, evidence


def test_richness_is_judged_beside_the_initial_network_and_prints_both() -> None:
    assert "D_LR 0.12 against 0.61 before training, isotropic features 0.52" in part(record(), "Dynamics").rests_on


def test_signs_of_richness_that_disagree_are_said_to_disagree() -> None:
    lazy_features = changed(changed(record(), "forward/richness", 0.6), "forward/initial_alignment", 1.0)
    words = part(lazy_features, "Dynamics").words
    assert words == "rich by the tangent kernel and new tangent features but lazy by the last layer's features"


def test_features_that_moved_are_not_called_lazy_for_a_high_d_lr() -> None:
    moved = xr.DataTree.from_dict(
        {"/forward": changed(record(rich=False), "forward/initial_alignment", 0.3)["forward"].to_dataset()}
    )
    assert part(moved, "Dynamics").words == "neither clearly rich nor clearly lazy"


def test_a_kernel_that_grew_without_turning_is_not_called_lazy() -> None:
    grown = xr.DataTree.from_dict({"/tangent": record(rich=False)["tangent"].to_dataset()})
    assert part(grown, "Dynamics").words == "neither clearly rich nor clearly lazy"
    still = changed(changed(grown, "tangent/kernel_growth", 1.0), "tangent/kernel_drift", 0.001)
    assert part(still, "Dynamics").words == "lazy"


def test_features_that_appear_in_the_kernel_are_a_sign_of_richness_whatever_its_cosine() -> None:
    tree = changed(record(), "tangent/kernel_drift", 0.01)
    alone = xr.DataTree.from_dict({"/tangent": tree["tangent"].to_dataset()})
    assert part(alone, "Dynamics").words == "rich" and "came to span a+b and a−b" in part(alone, "Dynamics").rests_on


def test_richness_is_never_decided_by_accuracy() -> None:
    dumb = changed(record(), "training/test_accuracy", 0.03)
    assert part(dumb, "Dynamics").words == "rich" and "never generalised" in part(dumb, "Learning").words


def test_values_between_the_thresholds_are_not_called_rich_or_lazy() -> None:
    middle = changed(changed(record(rich=False), "forward/richness", 0.45), "tangent/kernel_drift", 0.3)
    assert part(middle, "Dynamics").words == "neither clearly rich nor clearly lazy"


def test_a_step_whose_spectrum_has_no_cliff_carries_no_family() -> None:
    tree = record()
    nowhere = np.where(np.arange(18) == 0, np.nan, 1.0)[:, None]
    for name in ("block_first", "block_last", "overlap_chance"):
        tree = changed(tree, f"tangent/{name}", tree["tangent"][name].values * nowhere)
    tree = changed(tree, "tangent/overlap", tree["tangent"]["overlap"].values * nowhere[:, :, None])
    assert "features of a and b appear at step 5" in part(tree, "Features").words


def test_an_accuracy_that_falls_again_has_not_been_reached() -> None:
    tree = record()
    values = tree["training"]["test_accuracy"].values.copy()
    values[-1] = 0.5
    assert "never generalised" in part(changed(tree, "training/test_accuracy", values), "Learning").words


def test_a_run_that_is_still_going_has_not_failed_to_generalise() -> None:
    early = record(steps=np.array([0, 10, 40, 60]), state="recording")
    assert part(early, "Learning").words == "fitted by step 40, not generalising so far"


def test_learning_at_once_is_not_called_grokking() -> None:
    tree = record()
    together = changed(tree, "training/test_accuracy", tree["training"]["train_accuracy"].values)
    assert part(together, "Learning").words == "generalised at step 40"


def test_a_block_of_nearly_all_modes_does_not_count_as_carrying_a_family() -> None:
    tree = record()
    wide = changed(changed(tree, "tangent/overlap", 0.95), "tangent/overlap_chance", 0.93)
    assert part(wide, "Features").words.startswith("none of the named features")


def test_a_family_is_not_there_before_training_when_the_record_starts_later() -> None:
    late = record(steps=np.array([100, 200, 500]))
    assert "before training" not in verdict(late).sentence


def test_an_alignment_inside_the_band_of_its_null_is_chance() -> None:
    tree = record()
    inside = changed(tree, "ansatz/centred", tree["ansatz"]["centred_null"].values + 0.05)
    assert part(inside, "Weights").words == "no layer's weights align clearly beyond chance"


def test_an_alignment_above_its_band_but_hardly_above_its_null_is_not_called_one() -> None:
    tree = record()
    for name, value in {"": 0.985, "_null": 0.982, "_null_high": 0.983, "_adjusted": 0.16}.items():
        tree = changed(tree, f"ansatz/centred{name}", value)
    assert part(tree, "Weights").words == "no layer's weights align clearly beyond chance"


def test_without_a_sampled_band_nothing_is_said_about_alignment() -> None:
    tree = record()
    for end in ("low", "high"):
        tree = changed(tree, f"ansatz/centred_null_{end}", np.nan)
    tree = changed(changed(tree, "ansatz/centred", 0.998), "ansatz/centred_null", 0.978)  # the analytic null
    found = part(tree, "Weights")
    assert found.words == "" and not found.holds and "analytic" in found.rests_on
    assert "align" not in verdict(tree).sentence


def test_layers_without_a_band_are_not_judged_beside_those_that_have_one() -> None:
    tree = record()
    value, null, high = (tree["ansatz"][f"centred{end}"].values.copy() for end in ("", "_null", "_null_high"))
    value[-1], null[-1] = 0.51, 0.5  # at chance, all but the last layer, which has no band
    value[-1, -1], null[-1, -1], high[:, -1] = 0.99, 0.5, np.nan
    for end, values in {"": value, "_null": null, "_null_high": high}.items():
        tree = changed(tree, f"ansatz/centred{end}", values)
    tree = changed(tree, "ansatz/centred_adjusted", (value - null) / (1 - null))
    found = part(tree, "Weights")
    assert found.words == "no layer's weights align clearly beyond chance" and "1 layers have no sampled" in found.rule


def test_of_many_layers_at_chance_one_is_seldom_called_aligned() -> None:
    random, called, trials, layers = np.random.default_rng(0), 0, 60, 20
    names = {"null": "centred_null", "null_low": "centred_null_low", "null_high": "centred_null_high"}
    for _ in range(trials):
        draws = random.normal(0.4, 0.15, (layers, 40))  # a layer's value, and 39 in random bases
        value, others = draws[:, 0], np.sort(draws[:, 1:], axis=1)
        null = others.mean(1)
        levels = {"": value, "_null": null, "_null_low": others[:, 1], "_null_high": others[:, -2]}
        levels["_adjusted"] = (value - null) / (1 - null)
        data = {f"centred{end}": (("step", "layer"), level[None]) for end, level in levels.items()}
        data["centred"] = (*data["centred"], names)
        coords = {"step": [9], "layer": [f"net.{layer}" for layer in range(layers)]}
        called += part(xr.DataTree.from_dict({"/ansatz": xr.Dataset(data, coords=coords)}), "Weights").holds
    assert called <= 0.05 * trials + 3 * (0.05 * trials) ** 0.5


def test_chance_of_an_overlap_is_the_recorded_one_not_that_of_the_picture() -> None:
    tree = record()
    data = tree["ansatz/layers/net.0"].to_dataset()  # 24 of the layer's 256 units are drawn
    data["alignment"].attrs["chance"] = "alignment_chance"
    data["alignment_chance"] = ("step", np.full(len(STEPS), 1 / 256))
    tree["ansatz/layers/net.0"] = data
    panel = alignment_panel({"run": tree})
    assert panel is not None
    assert panel.table is not None
    drawn, unknown = panel.table.rows
    assert drawn[-1] == 1 / 256 and np.isnan(unknown[-1])  # nothing is made up where the record does not say


def test_a_drifting_kernel_rules_the_theory_out() -> None:
    assert "theory does not apply here: kernel change" in part(record(), "Tokens").rests_on
    assert "training is close to lazy" in part(record(rich=False), "Tokens").rests_on


def test_a_kernel_that_grew_a_hundredfold_without_turning_is_outside_of_the_theory() -> None:
    grown = changed(record(rich=False), "tokens/kernel_change", 99.0)
    assert "theory does not apply here" in part(grown, "Tokens").rests_on
    panel = next(panel for panel in tokens.section({"run": grown}).panels if panel.name == "predicted")
    assert panel.finding.startswith("Theory does not apply here")
    assert panel.table.columns == ("label", "correlation", "relative error")
    correlation, error = panel.table.rows[0][1:]
    assert abs(correlation - 1) < 1e-6 and error < 1e-6


def test_failed_measures_and_unfinished_runs_are_said() -> None:
    tree = record(state="recording")
    tree["errors"] = xr.Dataset(
        attrs={"log": json.dumps([{"step": 30, "measure": "tangent/overlap", "type": "ValueError", "message": "no"}])}
    )
    cautions = [str(evidence) for evidence in verdict(tree).evidence if evidence.about == "Caution"]
    assert (
        len(cautions) == 2 and "tangent/overlap" in cautions[0] and "step 30" in cautions[0] and "killed" in cautions[1]
    )


def test_too_little_is_said_to_be_too_little() -> None:
    assert verdict(xr.DataTree()).sentence == "Too little was recorded for a verdict."


@pytest.mark.parametrize("group", ["training", "tangent", "forward", "ansatz", "tokens"])
def test_any_instrument_may_be_missing_or_the_only_one(group: str) -> None:
    tree = record()
    alone = xr.DataTree.from_dict({f"/{group}": tree[group].to_dataset()})
    rest = xr.DataTree.from_dict(
        {f"/{name}": node.to_dataset() for name, node in tree.children.items() if name != group}
    )
    assert verdict(alone).sentence.endswith(".") and verdict(rest).sentence.endswith(".")


def test_a_verdict_prints_as_a_few_lines_of_text() -> None:
    lines = str(verdict(record())).splitlines()
    assert 5 <= len(lines) <= 20 and max(map(len, lines)) <= 118


def test_one_recorded_state_says_nothing_about_training() -> None:
    for rich in (True, False):
        alone = record(steps=np.array([500]), rich=rich)
        said = verdict(alone)
        assert not {"rich", "lazy", "grokked", "learned"} & set(said.sentence.lower().replace(";", " ").split())
        assert "Dynamics" not in {evidence.about for evidence in said.evidence}
        assert "it takes a state before and one after" in part(alone, "Caution").rests_on
    carried = part(record(steps=np.array([500])), "Features").words
    assert carried.startswith("the tangent kernel carries features of") and "before training" not in carried
    assert part(record(steps=np.array([500])), "Learning").words == "right on 100 % of the test set"


def measured_at(tree: xr.DataTree, group: str, steps: list[int]) -> xr.DataTree:
    """A copy of a record in which a group was measured at some of the steps only."""
    copy = tree.copy(deep=True)
    copy[group] = copy[group].to_dataset().where(xr.DataArray(np.isin(STEPS, steps), dims="step"))
    return copy


def only(tree: xr.DataTree, *groups: str) -> xr.DataTree:
    return xr.DataTree.from_dict({f"/{name}": tree[name].to_dataset() for name in groups})


def test_one_measurement_of_the_features_is_no_sign_of_what_training_did() -> None:
    once = only(measured_at(record(rich=False), "forward", [0]), "forward", "training")
    assert "Dynamics" not in {evidence.about for evidence in verdict(once).evidence}
    twice = only(measured_at(record(rich=False), "forward", [0, 500]), "forward", "training")
    assert part(twice, "Dynamics").words == "lazy"


def test_a_part_that_was_last_measured_before_the_last_step_says_when() -> None:
    early = only(measured_at(record(rich=False), "forward", [0, 30]), "forward", "training")
    said = part(early, "Dynamics")
    assert said.words == "lazy (as of step 30)" and said.rests_on.startswith("at step 30 D_LR")
    assert "last measured at step 30, while the record goes to step 500" in said.rests_on
    assert "as of" not in verdict(record()).sentence


@pytest.mark.parametrize("names", [["loss"], ["parameter_norm", "probe_loss"], ["train_loss"]])
def test_losses_and_weights_that_are_not_finite_any_more_are_a_diverged_run(names: list[str]) -> None:
    tree = record()
    tree.attrs["not_finite"] = json.dumps(names)
    said = verdict(tree)
    assert said.sentence.startswith("Diverged; ") and "not finite at step 500" in said.evidence[0].rests_on
    # nan for targets that are no classes, and for a test that was not made at this step
    tree.attrs["not_finite"] = json.dumps(["probe_accuracy", "test_loss"])
    assert not verdict(tree).sentence.startswith("Diverged")


@pytest.mark.parametrize(
    ("train", "test"),
    [("train_acc", "val_acc"), ("acc", "val_acc"), ("accuracy", "eval_accuracy"), ("train_acc_epoch", "valid_acc")],
)
@pytest.mark.parametrize("scale", [1, 100])
def test_accuracies_are_found_by_their_usual_names_and_as_per_cent(train: str, test: str, scale: int) -> None:
    tree = record()
    data = tree["training"].to_dataset()
    others = {name: data[f"{kind}_accuracy"] * scale for name, kind in ((train, "train"), (test, "test"))}
    tree["training"] = data.drop_vars(["train_accuracy", "test_accuracy"]).assign(others)
    said = part(tree, "Learning")
    assert said.words == part(record(), "Learning").words and f"{test.replace('_', ' ')} 100 %" in said.rests_on


def test_an_accuracy_that_any_constant_answer_reaches_is_said_to_be_no_better() -> None:
    blind = only(changed(record(), "training/probe_accuracy", 1 / 29), "training")
    blind["training"] = blind["training"].to_dataset().drop_vars(["train_accuracy", "test_accuracy"])
    assert part(blind, "Learning").words == "right on 3.4 % of the probe, no better than its largest class, 3.4 %"
