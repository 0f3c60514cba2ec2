"""The forward-feature study: its trainings do what they say, and every claim is judged from what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tangentlens.errors import BadInput
from tangentlens.kernels.features import features
from tangentlens.record.open import open_record
from tangentlens.studies import study
from tangentlens.studies.claims import StudyOptions, claims_json
from tangentlens.studies.datasets import MissingData, mnist
from tangentlens.studies.nam2024 import judged_results, run
from tangentlens.studies.nam2024.claims_pictures import _share_as_far_apart
from tangentlens.studies.nam2024.looking import Look, audience, look
from tangentlens.studies.nam2024.material import Labelled, Material, with_code
from tangentlens.studies.nam2024.models import (
    AdditionTransformer,
    FromTheStart,
    fully_connected,
    plain_deep,
    residual,
    scaled,
)
from tangentlens.studies.nam2024.recording import kept
from tangentlens.studies.nam2024.results import EXPERIMENTS, Results, all_arms, measured
from tangentlens.studies.nam2024.sizes import FULL, QUICK, Sizes
from tangentlens.studies.nam2024.training import Training, finished, head_parameters, relative_loss, trained

FEW = Training(steps=4, batch=32, learning_rate=0.02)
TINY = Sizes(
    train=128, looked=160, shrink=4, regression_points=60, regression_widths=(12, 12),
    regression=Training(steps=20, batch=60, learning_rate=3e-3, method="adamw"),
    dense_widths=(16, 12), dense=FEW, digits_channels=2, digits_units=12, digits=replace(FEW, steps=9),
    memorised=64, memorising=FEW, residual_blocks=(1, 1), residual_width=4, residual=FEW, training_sizes=(64, 128),
    learning_rates=(0.01, 0.05), vgg_widths=(4, None, 6, None), vgg=FEW, downscalings=(1.0, 4.0),
    decaying=FEW, downscaled=FEW, modulus=5, addition_width=8, addition=replace(FEW, batch=100, method="adamw"),
    addition_looks=(2,),
)  # fmt: skip


@pytest.fixture(scope="module")
def results(data_folder: Path) -> Results:
    try:
        mnist("test", data_folder)
    except MissingData as absent:
        pytest.skip(str(absent))
    return measured(Material(data_folder, TINY, "cpu"), seeds=1)


def test_every_experiment_is_looked_at_before_and_after_training(results: Results) -> None:
    assert not results.absent
    seen = {(name, seed) for name, seed, _, _ in all_arms(results)}
    assert seen == {(name, 0) for name in EXPERIMENTS}
    for name, _, arm, looks in all_arms(results):
        assert looks[0].step == 0 or name == "layers"
        assert all(np.isfinite(found.distance) for found in looks), (name, arm)


def test_frozen_features_move_no_feature_number_by_a_single_digit(results: Results) -> None:
    for arms in results.frozen:
        start = arms["frozen"][0].forward
        for found in (looked.forward for looked in arms["frozen"][1:]):
            assert found.similarity == 1.0
            assert found.paper.participation == start.paper.participation
            assert found.random_head == start.random_head
            assert torch.equal(found.relative_eigenvalues, start.relative_eigenvalues)
        assert arms["full"][-1].forward.similarity < 1


def test_every_claim_gets_a_verdict_and_the_data_their_labels(results: Results) -> None:
    found = judged_results(results)
    assert len({verdict.id for verdict in found.verdicts}) == len(found.verdicts) >= 30
    assert all(verdict.tolerance and "lambda" not in verdict.tolerance for verdict in found.verdicts)
    json.loads(claims_json(found.verdicts))
    assert set(found.records) == {*EXPERIMENTS, "eigenfunctions"}
    frozen = found.records["frozen"]
    assert dict(frozen["richness"].sizes) == {"seed": 1, "arm": 2, "look": len(results.frozen[0]["full"])}
    assert float(frozen["initial_alignment"].sel(arm="frozen").min()) == 1
    assert found.records["eigenfunctions"]["eigenfunction"].dims == ("seed", "step", "point", "mode")
    controls = {verdict.id: verdict for verdict in found.verdicts}
    assert controls["c-similarity"].holds and controls["c-features"].holds


def test_seeds_repeat_and_differ(results: Results, data_folder: Path) -> None:
    again, other = measured(Material(data_folder, TINY, "cpu"), seeds=2, chosen=("weight_decay",)).weight_decay
    for arm, looks in results.weight_decay[0].items():
        assert looks[-1].distance == again[arm][-1].distance != other[arm][-1].distance


def test_absent_data_leave_claims_without_value_and_a_note(tmp_path: Path) -> None:
    found = measured(Material(tmp_path, TINY, "cpu"), seeds=1, chosen=("shortcut", "batch_norm", "grokking"))
    assert len(found.grokking) == 1 and not found.shortcut
    judged = judged_results(found)
    assert any("mnist needs" in note for note in judged.notes)
    assert {verdict.id: verdict.note for verdict in judged.verdicts}["1-rich"].startswith("shortcut: mnist needs")
    notes = {verdict.id: verdict.note for verdict in judged.verdicts}
    assert notes["9-batch-norm"].startswith("batch_norm: cifar10 needs") and "no value was measured" in notes["6-rate"]


def dead(seen: Look, units: int) -> Look:
    """What is seen of a network whose features, or else outputs, are the same for every example."""
    model = fully_connected(4, (5,), 3)
    with torch.no_grad():
        (model[1] if units else model[3]).weight.zero_()
    return replace(seen, forward=look(model, TINY_AUDIENCE).forward)


def test_a_value_that_could_not_be_measured_says_why(results: Results) -> None:
    whole = {verdict.id: verdict for verdict in judged_results(results).verdicts}
    assert not whole["9-batch-norm"].note
    arms = results.batch_norm[0]
    for units, what in ((5, "features"), (0, "outputs")):
        without = {**arms, "without batch norm": [dead(arms["without batch norm"][-1], units)]}
        verdicts = judged_results(replace(results, batch_norm=[without])).verdicts
        judged = {verdict.id: verdict for verdict in verdicts}
        assert np.isnan(judged["9-batch-norm"].ours) and not judged["9-batch-norm"].holds
        assert judged["9-batch-norm"].note == (
            f"batch_norm: without batch norm ends without a D_LR in 1 of 1 seeds, as its {what} do not vary"
        )
        assert judged["9-accuracy"] == whole["9-accuracy"], "an accuracy is there all the same"


def test_no_learning_rate_with_a_richness_is_a_claim_that_does_not_hold(results: Results) -> None:
    gone = {name: [dead(looks[-1], 5)] for name, looks in results.learning_rate[0].items()}
    judged = {v.id: v for v in judged_results(replace(results, learning_rate=[gone])).verdicts}
    assert judged["6-rate"].ours == "none has a D_LR" and not judged["6-rate"].holds
    assert "as its features do not vary" in judged["7-fast"].note


def test_a_diverged_seed_is_named_beside_the_claims_it_is_missing_from(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def diverging(material: Material, seed: int) -> dict[str, list[Look]]:
        tried.append(seed)
        if seed == 1:
            raise BadInput("moments need finite numbers")
        return looks_of([0.3, 0.2, 0.25])

    monkeypatch.setitem(EXPERIMENTS, "learning_rate", diverging)
    found = measured(Material(data_folder, TINY, "cpu"), seeds=3, chosen=("learning_rate",))
    assert tried == [0, 1, 2] and len(found.learning_rate) == 2
    judged = {verdict.id: verdict for verdict in judged_results(found).verdicts}
    assert judged["5-slow"].seeds == 2
    assert judged["5-slow"].note == "learning_rate: seed 1: moments need finite numbers"
    assert "moments need" not in judged["9-batch-norm"].note


def test_recorded_runs_hold_the_panels_richness_over_steps_and_eigenfunctions(
    results: Results, data_folder: Path, tmp_path: Path
) -> None:
    told = kept(tmp_path / "runs", judged_results(results).records, Material(data_folder, TINY, "cpu"))
    assert told.startswith("see them: tangentlens report")
    frozen, sine = open_record(tmp_path / "runs" / "frozen"), open_record(tmp_path / "runs" / "sine")
    assert {"richness", "cumulative_quality", "cumulative_utilisation"} <= set(frozen["forward"].data_vars)
    assert float(frozen["forward/initial_alignment"].min()) == 1 and frozen["forward"].sizes["step"] > 3
    assert sine["eigenfunctions/eigenfunction"].dims == ("step", "mode", "point")


def test_the_study_is_known_by_its_name() -> None:
    assert study("nam2024").run is run
    assert StudyOptions().seeds == 3


def test_training_the_head_alone_moves_nothing_else() -> None:
    torch.manual_seed(0)
    model = residual((1,), 4, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = torch.randn(40, 3, 8, 8), torch.randn(40, 3)
    finished(model, x, y, Training(steps=5, batch=16, head_only=True))
    head = {id(parameter) for parameter in head_parameters(model, x)}
    for name, value in model.state_dict(keep_vars=True).items():
        assert torch.equal(value, before[name]) != (id(value) in head), name


def test_training_pauses_where_asked_and_at_the_end_in_eval_mode() -> None:
    model, seen = fully_connected(4, (3,), 2), []
    for step in trained(model, torch.randn(10, 4), torch.randn(10, 2), Training(steps=6, batch=4), pauses=(0, 3, 99)):
        seen.append((step, model.training))
    assert seen == [(0, False), (3, False), (6, False)]


def test_measuring_in_between_changes_nothing_of_the_training() -> None:
    x, y = torch.randn(40, 3, 8, 8), torch.nn.functional.one_hot(torch.arange(40) % 4, 4).float()
    ends = []
    for measure in (False, True):
        torch.manual_seed(0)
        model = residual((1,), 4, 4)
        at = audience(model, x, y)
        for _ in trained(model, x, y, Training(steps=6, batch=16), pauses=(0, 2, 4)):
            if measure:
                look(model, at)
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_training_told_how_far_to_go_stops_there() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 4), torch.randn(40, 2)
    model, stops = fully_connected(4, (32,), 2), []
    for step in trained(model, x, y, Training(steps=2000, batch=40, learning_rate=0.05, enough=0.5), pauses=(7,)):
        stops.append(step)
    assert stops[0] == 7 and stops[1] % 20 == 0 and stops[1] < 2000
    assert relative_loss(model, x, y) <= 0.5 and relative_loss(model, x, y + 100) > 0.9


def test_what_was_there_at_the_start_is_taken_off_and_its_head_is_still_found() -> None:
    torch.manual_seed(0)
    network, x = fully_connected(4, (8,), 3), torch.randn(20, 4)
    learned = FromTheStart(network)
    assert torch.equal(learned(x), torch.zeros(20, 3))
    assert {id(p) for p in learned.parameters()} == {id(p) for p in network.parameters()}
    before = network(x).detach()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    found = features(learned, x)
    torch.testing.assert_close(found.values, network[:-1](x).detach())
    torch.testing.assert_close(found.outputs, network(x).detach() - before)


def test_scaled_weights_have_the_deviation_asked_for() -> None:
    torch.manual_seed(0)
    model = scaled(fully_connected(400, (300,), 2), 3.0)
    assert float(model[1].weight.detach().std()) == pytest.approx(3 / 20, rel=1e-5) and not model[1].bias.any()


def looks_of(values: list[float]) -> dict[str, list[Look]]:
    arms = {}
    for place, value in enumerate(values):
        one = look(fully_connected(4, (5,), 3), TINY_AUDIENCE)
        paper = replace(one.forward.paper, distance=value)
        arms[str(place)] = [replace(one, forward=replace(one.forward, paper=paper))]
    return arms


TINY_AUDIENCE = audience(fully_connected(4, (5,), 3), torch.randn(40, 4), torch.eye(3)[torch.arange(40) % 3])


def test_sizes_that_differ_in_any_order_are_told_from_chance() -> None:
    bent = [looks_of([0.3 + shift, 0.4 + shift, 0.31 + shift]) for shift in (0, 0.02, -0.03)]
    assert _share_as_far_apart(bent) == pytest.approx(1 / 36)  # up and down again, in every seed
    mixed = [looks_of(values) for values in ([0.3, 0.4, 0.5], [0.5, 0.3, 0.4], [0.4, 0.5, 0.3])]
    assert _share_as_far_apart(mixed) == 1
    assert np.isnan(_share_as_far_apart(bent[:1]))
    many = [looks_of([0.3, 0.35, 0.4, 0.45, 0.5]) for _ in range(4)]
    assert _share_as_far_apart(many) < 0.001  # drawn, not gone through


def test_every_alpha_reports_its_kernel_change_and_what_it_left(results: Results) -> None:
    for found in results.downscaled:
        assert list(found.arms) == list(found.changes) == list(found.left) == ["alpha 1", "alpha 4"]
        assert all(0 <= change <= 1 for change in found.changes.values())
        assert all(looks[0].forward.similarity == 1 for looks in found.arms.values())
        assert found.arms["alpha 1"][0].distance == found.arms["alpha 4"][0].distance
    data = judged_results(results).records["downscaled"]
    assert data["training_targets_left"].dims == data["tangent_kernel_change"].dims == ("seed", "arm")


def test_the_mark_says_the_class_and_touches_six_pixels() -> None:
    plain = Labelled(torch.zeros(10, 1, 28, 28), torch.arange(10))
    marked = with_code(plain, plain.labels, brightness=0.5)
    assert torch.equal(marked.inputs.flatten(1).sum(1), torch.full((10,), 3.0))
    assert len(marked.inputs.flatten(1).unique(dim=0)) == 10 and plain.inputs.sum() == 0


def test_full_sizes_are_the_networks_of_the_paper() -> None:
    large = residual(FULL.residual_blocks, FULL.residual_width, 10)
    assert (large[-1].in_features, len([m for m in large.modules() if isinstance(m, torch.nn.Conv2d)])) == (512, 20)
    convolutions = [width for width in FULL.vgg_widths if width]
    vgg = plain_deep(FULL.vgg_widths, 10, batch_norm=False)
    assert len(convolutions) == 13 and vgg[-1].in_features == 512
    transformer = AdditionTransformer(FULL.modulus, FULL.addition_width, FULL.addition_layers)
    assert transformer(torch.zeros(2, 2).long()).shape == (2, 97)
    assert plain_deep(QUICK.vgg_widths, 10, batch_norm=True, side=16)(torch.randn(2, 3, 16, 16)).shape == (2, 10)


def test_what_is_known_is_not_what_is_right_on_fresh_examples() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.eye(3)[torch.arange(60) % 3]
    model = fully_connected(4, (64,), 3)
    at = audience(model, x, y, fresh=(x, y.roll(1, 1)))
    before = look(model, at)
    finished(model, x, y, Training(steps=600, batch=60, learning_rate=0.1))
    after = look(model, at)
    assert before.known < 0.9 < after.known and after.accuracy == pytest.approx(1 - after.known, abs=0.1)
    plain = look(model, replace(at, fresh=None))
    assert plain.known == plain.accuracy == after.known


def test_claims_about_trainings_stand_beside_whether_the_pictures_were_learned(results: Results) -> None:
    for experiment, control in (
        ("learning_rate", "6-known"),
        ("batch_norm", "9-known"),
        ("fully_connected", "16-known"),
    ):
        for least in (0.5, 1.0):
            (arms,) = getattr(results, experiment)
            known = {name: [replace(looks[-1], known=1.0)] for name, looks in arms.items()}
            known[list(known)[-1]] = [replace(known[list(known)[-1]][0], known=least)]
            verdicts = judged_results(replace(results, **{experiment: [known]})).verdicts
            judged = {verdict.id: verdict for verdict in verdicts}
            assert judged[control].ours == 100 * least and judged[control].holds == (least == 1)
