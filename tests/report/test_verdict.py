"""The verdict says what the recorded values say, with the rule, and no more than the record holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from tangentlens.report import verdict
from tangentlens.report.verdict import Evidence
from tests.report.records import record


def changed(tree: xr.DataTree, path: str, values: object) -> xr.DataTree:
    """A copy of a record in which one variable holds other values."""
    group, name = path.split("/")
    copy = tree.copy(deep=True)
    data = copy[group].to_dataset()
    data[name] = data[name] * 0 + values
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


def test_a_drifting_kernel_rules_the_theory_out() -> None:
    assert "does not apply" in part(record(), "Tokens").rests_on
    assert "the kernel kept its direction" in part(record(rich=False), "Tokens").rests_on


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
