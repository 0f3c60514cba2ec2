from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tangentlens.record.open import open_record
from tangentlens.studies import StudyOptions, study
from tangentlens.studies.beaglehole2024 import whole
from tangentlens.studies.beaglehole2024.chain import Chain
from tangentlens.studies.beaglehole2024.chain_claims import NUMBERS, chain_verdicts
from tangentlens.studies.beaglehole2024.chain_runs import BEYOND, LIMITED, SETTINGS, ChainRun, Setting, chain_run
from tangentlens.studies.beaglehole2024.early import quadratic_early, relu_early, residual_and_target_limits
from tangentlens.studies.beaglehole2024.early_claims import early_verdicts
from tangentlens.studies.beaglehole2024.recording import record_chain
from tangentlens.studies.beaglehole2024.records import chain_record, early_record
from tangentlens.studies.beaglehole2024.sizes import QUICK


def short(setting: Setting, seed: int = 0, steps: int = 30) -> ChainRun:
    return chain_run(replace(setting, steps=steps), seed, examples=64, width=32, draws=4, times=(0.5,))


@pytest.mark.parametrize(
    ("length", "degree", "cyclic"),
    [(5, 2, True), (5, 2, False), (4, 3, True), (3, 3, True), (2, 2, True), (4, 1, False)],
)
def test_the_closed_form_egop_is_that_of_the_target(length: int, degree: int, cyclic: bool) -> None:
    chain = Chain(length, degree, cyclic, inputs=6)
    weighted = chain.egop()
    assert abs(chain(torch.randn(400_000, 6)).var() - 1) < 0.05
    # no input's power in a product of two gradients exceeds 4: three Gauss-Hermite points each are exact
    points, masses = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(3))
    inputs, mass = torch.cartesian_prod(*[points] * 6), torch.cartesian_prod(*[masses / masses.sum()] * 6).prod(dim=1)
    inputs.requires_grad_(True)
    (gradients,) = torch.autograd.grad(chain(inputs).sum(), inputs)
    assert torch.allclose((gradients * mass[:, None]).T @ gradients, weighted, atol=1e-12)
    if degree == 2 and length == 5 and cyclic:
        assert torch.allclose(weighted.diagonal()[:5] * chain.scale**2, torch.full((5,), 2.0).double())
        assert abs(weighted[0, 2] * chain.scale**2 - 1) < 1e-12 and weighted[0, 1] == 0
    if length == degree:  # one monomial, or as many copies of it as the ring has starts
        assert len(chain.terms) == 1


def test_a_chain_longer_than_its_inputs_is_refused() -> None:
    with pytest.raises(ValueError, match="degree <= length <= inputs"):
        Chain(length=9, inputs=6)


def test_a_run_reads_start_first_step_and_end_with_a_null_beside_every_correlation() -> None:
    run = short(LIMITED)
    assert run.steps == [0, 1, 15, 30]
    assert math.isnan(run.readings[0]["centred"]) and run.readings[0]["relative_change"] == 0
    for name in ("uncentred", "centred", "centred_initial_kernel", "centred_kernel_change"):
        assert {f"{name}{end}" for end in ("_null", "_low", "_high", "_adjusted")} <= set(run.readings[1])
    others = ("quality", "agop_quality", "machine_quality", "machine_nfm", "machine_agop", "uncentred_entries")
    assert all(0 < run.at(f"{name}_null") < 1 and run.at(f"{name}_null") != run.at(name) for name in others)
    told = whole._machine({name: [run] for name in ("plain", "quarter init", "speed-limited")})
    assert told.count("(chance") == 7 and f"(chance {run.at('machine_agop_null'):.3f})" in told
    assert run.at("relative_change", "last") > run.at("relative_change", "first") > 0


def test_speed_limits_move_the_first_layer_by_the_rate_times_its_speed() -> None:
    one = chain_run(replace(LIMITED, steps=1), 0, examples=64, width=32, draws=2)
    initial = torch.nn.Linear(32, 32, bias=False)
    torch.manual_seed(0)
    initial.reset_parameters()
    weight = initial.weight.norm().item()
    assert one.at("relative_change", "last") == pytest.approx(500 * 1e-4 / weight, rel=0.02)


def test_small_initialisation_moves_further_and_frozen_layers_match_speed_limits() -> None:
    plain, small = short(SETTINGS[0], steps=150), short(replace(SETTINGS[2]), steps=150)
    limited, frozen = short(LIMITED), short(SETTINGS[5])
    assert small.at("relative_change") > plain.at("relative_change")
    assert SETTINGS[5].name == "frozen above"
    assert limited.at("uncentred") == pytest.approx(frozen.at("uncentred"), abs=1e-3)
    assert all(short(setting, steps=3).at("train_error") > 0 for setting in (*SETTINGS, *BEYOND))


def test_every_claim_of_the_chain_task_is_judged_and_its_numbers_are_listed() -> None:
    runs = {setting.name: [short(setting, seed, steps=4) for seed in range(2)] for setting in SETTINGS}
    verdicts = chain_verdicts(runs)
    ids = [verdict.id for verdict in verdicts]
    assert len(set(ids)) == len(ids)
    assert {identity.split(".")[0] for identity in ids} == {"2", "3", "4", "5", "6", "8", "n"}
    listed = sum(number is not None for numbers in NUMBERS.values() for number in numbers)
    assert sum(identity.startswith("n.") for identity in ids) == listed
    by_id = {verdict.id: verdict for verdict in verdicts}
    by_hand = [
        min(half.at("quality_null") - plain.at("quality_null"), quarter.at("quality_null") - half.at("quality_null"))
        for plain, half, quarter in zip(runs["plain"], runs["half init"], runs["quarter init"])
    ]
    assert by_id["3.quality"].baseline == pytest.approx(sum(by_hand) / 2) and by_id["4"].baseline is None
    assert by_id["6.frozen above"].seeds == by_id["6.layer-wise rates"].seeds == 2
    assert by_id["n.centred_share.plain"].tolerance == "0.009 .. 0.015" and by_id["5"].tolerance.startswith(
        "0.9 .. 1.1"
    )
    assert not all(verdict.holds for verdict in verdicts)  # four steps train nothing: the claims can fail
    assert all(math.isfinite(verdict.ours) for verdict in verdicts)
    record = chain_record(runs)["chain/plain"]
    assert record["uncentred"].dims == ("seed", "step") and record.attrs["setting"] == "plain"


def test_early_predictions_are_judged_against_simulation_on_the_same_data() -> None:
    quadratic = [quadratic_early(0.0, seed, inputs=40, examples=120, width=80, networks=2) for seed in range(2)]
    relu = {1: [relu_early(0.0, 1, seed, examples=100, width=128, networks=2) for seed in range(2)]}
    verdicts = {verdict.id: verdict for verdict in early_verdicts(quadratic, relu, 1)}
    assert set(verdicts) == {"1", "7", "9.quadratic", "9.listed", "9.relu 1", "9.step", "10.easy"}
    assert all(verdicts[identity].holds for identity in ("1", "7", "9.step", "10.easy"))
    assert verdicts["9.quadratic"].ours < 0.1
    for identity in ("9.quadratic", "9.relu 1"):  # chance, in the prediction's place, is further off
        assert verdicts[identity].baseline > 2 * verdicts[identity].ours
    record = early_record(quadratic)
    assert record["predicted"].sizes == {"exponent": 1, "seed": 2}


def test_residuals_not_targets_give_the_limit_of_a_tiny_step() -> None:
    limits = residual_and_target_limits(0, examples=200)
    assert limits["residual"] == pytest.approx(limits["tiny step"], abs=1e-4)
    assert abs(limits["target"] - limits["tiny step"]) > 10 * abs(limits["residual"] - limits["tiny step"])


def test_the_study_is_found_by_name_and_leaves_out_what_it_has_no_data_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tuple(replace(setting, steps=2) for setting in SETTINGS)
    monkeypatch.setattr(whole, "SETTINGS", few)
    monkeypatch.setattr(whole, "BEYOND", tuple(replace(setting, steps=2) for setting in BEYOND))
    monkeypatch.setattr(whole, "chain_run", partial(chain_run, examples=64, width=16, draws=2))
    monkeypatch.setattr(whole, "record_chain", partial(record_chain, examples=64, width=16))
    monkeypatch.setattr(whole, "quadratic_early", partial(quadratic_early, inputs=16, examples=64, width=32))
    monkeypatch.setattr(whole, "relu_early", partial(relu_early, examples=64, width=64))
    monkeypatch.setattr(whole, "QUICK", replace(QUICK, exponents=(0.0,), networks=1))
    empty = tmp_path / "empty"
    empty.mkdir()
    result = study("beaglehole2024").run(StudyOptions(quick=True, seeds=1, data=empty, run=tmp_path / "run"))
    assert {verdict.id.split(".")[0] for verdict in result.verdicts} == {
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
        "10",
        "n",
    }
    first_words = ["recursive", *["beyond"] * 3, "mnist", "cifar10", "svhn", "celeba", "ways"]
    assert [note.split(" ")[0] for note in result.notes] == first_words
    assert (tmp_path / "run" / "records.zarr").is_dir()
    recorded = open_record(tmp_path / "run" / "speed-limited")
    assert recorded["ansatz/uncentred_null"].dims == ("step", "layer") and "0" in recorded["ansatz/layer"].values
