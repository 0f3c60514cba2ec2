"""The study of lin2025 in small: its networks, their kernels in closed form, and its tables on short runs."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

from tangentlens.kernels import entk, entk_by_layer, entk_full
from tangentlens.measures.cliffs import Cliffs
from tangentlens.measures.families import modular_families
from tangentlens.measures.linearised import linearisation_fidelity, linearised_prediction
from tangentlens.report.sections import sections_of
from tangentlens.studies import StudyOptions, study
from tangentlens.studies.claims_table import table
from tangentlens.studies.lin2025 import experiment, modular_mlp, modular_transformer, superposition, transformer_model
from tangentlens.studies.lin2025.labelled import mlp_dataset, superposition_dataset, transformer_dataset
from tangentlens.studies.lin2025.linearised import RIDGE, linearised_run, linearised_verdicts
from tangentlens.studies.lin2025.mlp_verdicts import mlp_verdicts
from tangentlens.studies.lin2025.superposition_model import Superposition, sparse_inputs, trained_superposition
from tangentlens.studies.lin2025.superposition_verdicts import (
    _claims as superposition_claims,
    beta_table,
    order_of_importance,
    superposition_verdicts,
)
from tangentlens.studies.lin2025.transformer_model import (
    ModularTransformer,
    OneLayerTransformer,
    sequences,
    shuffled_rows,
)
from tangentlens.studies.lin2025.transformer_verdicts import CLAIMS as TRANSFORMER_CLAIMS, transformer_verdicts
from tangentlens.studies.modular_addition import Epoch, ModularAddition, QuadraticMLP, all_pairs, split_mask, training
from tests.reference.lin2025 import quadratic_mlp_kernels, shuffling_loader_orders


def test_the_quadratic_network_computes_what_the_paper_says():
    model = QuadraticMLP(5, 8, torch.Generator().manual_seed(0)).double()
    x = all_pairs(5).inputs.double()
    w, v = model.hidden.weight, model.readout.weight
    torch.testing.assert_close(model(x), (x @ w.T / 10**0.5) ** 2 @ v.T / 8)


def test_the_kernels_of_the_quadratic_network_have_their_closed_forms():
    model = QuadraticMLP(7, 12, torch.Generator().manual_seed(1)).double()
    x = all_pairs(7).inputs.double()
    of_hidden, of_readout = quadratic_mlp_kernels(x, model.hidden.weight.detach(), model.readout.weight.detach())
    found = entk_by_layer(model, x)
    torch.testing.assert_close(found["hidden"], of_hidden)
    torch.testing.assert_close(found["readout"], of_readout)
    torch.testing.assert_close(entk(model, x), of_hidden + of_readout)


def test_pairs_are_in_row_order_with_their_sums():
    pairs = all_pairs(4)
    assert pairs.inputs.shape == (16, 8) and pairs.inputs.sum(1).tolist() == [2.0] * 16
    assert (int(pairs.first[7]), int(pairs.second[7]), int(pairs.labels[7])) == (1, 3, 0)


def test_the_split_takes_the_share_it_is_told():
    mask = split_mask(841, 0.7, torch.Generator().manual_seed(0))
    assert int(mask.sum()) == 588


def test_training_is_the_same_for_the_same_seed_and_leaves_the_random_state_alone():
    state = torch.get_rng_state()
    short = ModularAddition(modulus=5, width=16, epochs=3)
    runs = [[(now.epoch, now.loss) for now in training(short)] for _ in range(2)]
    assert runs[0] == runs[1] and [epoch for epoch, _ in runs[0]] == [0, 1, 2, 3]
    assert [now.loss for now in training(replace(short, seed=1))] != [loss for _, loss in runs[0]]
    assert torch.equal(torch.get_rng_state(), state)


def test_the_network_memorises_its_training_pairs():
    *_, last = training(ModularAddition(modulus=7, width=64, epochs=150, train_share=0.5))
    assert last.train_accuracy == 1.0 and last.test_accuracy < 1.0


def test_batches_come_in_the_order_of_a_shuffling_loader():
    generator = torch.Generator().manual_seed(2)
    torch.randn(50, generator=generator)
    first = transformer_model._loader_order(11, generator).tolist()
    transformer_model._drawn_seed(generator)  # an evaluation: the test set, then the training set
    transformer_model._loader_order(11, generator)
    second = transformer_model._loader_order(11, generator).tolist()
    assert [first, second] == shuffling_loader_orders(11, draws_before=50, seed=2)


def test_pairs_are_split_by_pythons_shuffle():
    task = ModularTransformer(modulus=5)
    pairs = [(i, j) for i in range(5) for j in range(5)]
    random.seed(0)
    random.shuffle(pairs)
    train, test = shuffled_rows(task)
    assert [divmod(row, 5) for row in train.tolist()] == pairs[:12]
    assert [divmod(row, 5) for row in test.tolist()] == pairs[12:]


def test_the_transformer_has_the_papers_number_of_parameters_and_starts_from_its_seed():
    model = OneLayerTransformer(ModularTransformer(), torch.Generator().manual_seed(2))
    assert sum(parameter.numel() for parameter in model.parameters()) == 53_184
    torch.manual_seed(2)
    torch.testing.assert_close(model.embedding.detach(), torch.randn(30, 64) / 8)


def test_the_transformer_reads_no_later_token():
    task = ModularTransformer(modulus=5, width=8, heads=2, hidden=6)
    model = OneLayerTransformer(task, torch.Generator().manual_seed(0))
    stream = torch.randn(3, 3, 8)
    later = stream.clone()
    later[:, 2] += 1
    before, after = model.attended(stream), model.attended(later)
    torch.testing.assert_close(before[:, :2], after[:, :2])
    assert float((before[:, 2] - after[:, 2]).abs().max()) > 1e-3


def test_the_unembedding_kernel_is_the_gram_of_the_final_hidden_states():
    task = ModularTransformer(modulus=5, width=8, heads=2, hidden=6)
    model = OneLayerTransformer(task, torch.Generator().manual_seed(0)).double()
    tokens = sequences(5)
    hidden = model.final_hidden(tokens).detach()
    torch.testing.assert_close(entk(model, tokens, parameters="unembedding"), hidden @ hidden.T)


def test_sparse_inputs_have_unit_length_and_the_sparsity_asked_for():
    setting = Superposition(sparsity=0.9)
    inputs = sparse_inputs(setting, torch.Generator().manual_seed(0))
    lengths = inputs.norm(dim=1)
    assert bool(((lengths - 1).abs() < 1e-5).logical_or(lengths == 0).all())
    assert float((inputs == 0).double().mean()) == pytest.approx(0.9, abs=0.01)


def test_rescaled_spectra_are_those_of_the_kernel_scaled_on_both_sides():
    setting = Superposition(hidden=3, features=6, examples=8, steps=5)
    model, _, inputs = trained_superposition(setting)
    kernel = entk_full(model, inputs, dtype=torch.float64).reshape(48, 48)
    scale = (0.8 ** torch.arange(6).double()).repeat(8) ** 0.5  # D^(beta/2) with beta 1, row n*C + c
    expected = torch.linalg.eigvalsh(scale[:, None] * kernel * scale).flip(0)[:10]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(superposition, "MODES", 10)
        found = superposition.importance_scaled(model, inputs, setting, 1.0).eigenvalues
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="module")
def short_mlp() -> modular_mlp.MLPRun:
    return modular_mlp.mlp_run(ModularAddition(epochs=10))


@pytest.fixture(scope="module")
def short_toy() -> superposition.SuperpositionRun:
    return superposition.superposition_run(Superposition(steps=3, examples=40))


@pytest.fixture(scope="module")
def short_transformer() -> modular_transformer.TransformerRun:
    return modular_transformer.transformer_run(ModularTransformer(modulus=11, epochs=20))


def test_a_short_run_of_the_mlp_ends_in_its_table_and_its_labelled_data(short_mlp):
    run = short_mlp
    assert run.steps == [0, 10] and run.found[0].largest(2) == [1, 57]
    assert set(run.layers) == {"hidden", "readout"} and run.layer_steps == [0, 10] and run.learned is None
    verdicts = mlp_verdicts([run], [run])
    by_name = {verdict.id: verdict for verdict in verdicts}
    assert len(by_name) == len(verdicts)
    assert by_name["M7.a"].holds and by_name["M10.init"].holds  # true at initialisation
    assert not by_name["M1"].holds and not by_name["M6.a+b"].holds  # ten epochs teach nothing of the sum
    assert by_name["M9.onset"].ours is None and not by_name["M9.onset"].holds
    assert "not holding" in table(verdicts)
    assert run.difference_cosines is not None and len(run.difference_cosines) == 28
    held = 100 * float(run.difference_cosines.square().sum()) / 28
    assert held == pytest.approx(run.second_block["a-b"][-1])
    assert by_name["M6.low"].ours == float(run.difference_cosines.min()) and not by_name["M6.low"].holds
    growth = run.eigenvalues[1] / run.eigenvalues[0]
    assert (by_name["M12"].ours, by_name["M12.all"].ours) == (float(growth[0]), float(growth.min()))
    of_more_seeds = mlp_verdicts([run], [run], [110.0, 150.0])
    (last_wrong_pair,) = [verdict for verdict in of_more_seeds if verdict.id == "M9.end"]
    assert last_wrong_pair.ours == 150.0 and last_wrong_pair.holds and last_wrong_pair.seeds == 3
    assert not by_name["M9.end"].holds and by_name["M9.end"].ours == float("inf")
    labelled = mlp_dataset([run])
    sizes = {"seed": 1, "step": 2, "mode": 200, "family": 4, "end": 2, "layer": 2, "layer_step": 2}
    assert dict(labelled.sizes) == sizes and bool(labelled["onset"].isnull().all())


def test_the_labelled_data_has_its_figures_in_the_report(short_mlp, short_toy, short_transformer):
    control = replace(short_mlp, layers={}, layer_steps=[])
    groups = {
        "superposition": superposition_dataset([short_toy, short_toy]),
        "modular_mlp": mlp_dataset([short_mlp]),
        "modular_mlp_control": mlp_dataset([control]),
        "modular_transformer": transformer_dataset(short_transformer),
    }
    tree = xr.DataTree.from_dict({f"/{name}": data for name, data in groups.items()})
    panels = {
        f"{section.name}/{panel.name}": panel for section in sections_of({"run": tree}) for panel in section.panels
    }
    assert set(panels) == {
        "superposition/spectra", "superposition/maps",
        "modular_mlp/overlap", "modular_mlp/rate", "modular_mlp/layers", "modular_mlp/layer-spectra",
        "modular_transformer/overlap", "modular_transformer/rate", "modular_transformer/spectra",
        "modular_transformer/tensors",
    }  # fmt: skip
    maps = panels["superposition/maps"].figures
    assert len(maps) == 4  # two betas, raw and normalised, of one seed
    np.testing.assert_allclose(
        maps["m=10, S=0.3, seed 0, beta 0.3: as they are"].data[0].z, short_toy.maps[0.3], rtol=1e-5
    )
    rate = {trace.name: trace.y for trace in panels["modular_mlp/rate"].figures["run"].data}
    rise = short_mlp.second_block["a+b"][1] - short_mlp.second_block["a+b"][0]
    np.testing.assert_allclose(rate["window, seed 0"], [rise, rise], rtol=1e-5)
    assert "memorising" in rate


def test_the_learned_block_is_the_one_above_the_largest_cliff_training_made_wherever_it_was_before():
    families = modular_families(*torch.cartesian_prod(torch.arange(5), torch.arange(5)).unbind(1), 5)
    features = torch.cat([families["a+b"], families["a-b"]], 1)
    block = torch.linalg.qr(features).Q
    rest = torch.linalg.qr(torch.cat([block, torch.eye(25, dtype=torch.float64)], 1)).Q[:, 8:]
    end = torch.cat([rest[:, :3], block, rest[:, 3:]], 1)
    start = torch.cat([rest[:, :9], block, rest[:, 9:]], 1)
    numbers = torch.ones(3, dtype=torch.float64)
    last = Cliffs(torch.tensor([3, 11, 20]), torch.tensor([9.0, 2.0, 1.0]).double(), numbers, numbers, numbers,
                  torch.tensor([False, True, True]))  # fmt: skip
    found = modular_mlp.learned_block(last, [start, end], families)
    assert found is not None and found.places == [(9, 17), (3, 11)] and set(found.carried[:2]) == {"a+b", "a-b"}
    assert found.overlaps["a+b"] == pytest.approx([100.0, 100.0])
    assert modular_mlp.learned_block(replace(last, learned=torch.zeros(3, dtype=torch.bool)), [end], families) is None


def test_the_short_version_repeats_over_the_seeds_it_is_told(monkeypatch, short_mlp, short_toy):
    trained: list[int] = []
    monkeypatch.setattr(experiment, "superposition_run", lambda setting: short_toy)
    monkeypatch.setattr(experiment, "mlp_run", lambda task, **how: trained.append(task.seed) or short_mlp)
    experiment.run(StudyOptions(quick=True, seeds=2))
    assert trained == [0, 1, 0, 1]  # and once more the control
    assert study("lin2025").quick_seeds == 1


def test_the_epoch_of_the_last_wrong_pair_is_found_without_kernels(monkeypatch):
    accuracies = [0.0, 1.0, 0.9, *[0.9] * 17, 1.0, 1.0]  # perfect at 1, which is not recorded, and from 20 on
    epochs = [Epoch(at, QuadraticMLP(3, 2), 0.0, 1.0, value) for at, value in enumerate(accuracies)]
    monkeypatch.setattr(modular_mlp, "training", lambda task: iter(epochs))
    assert modular_mlp.first_perfect_epoch(ModularAddition(epochs=21)) == 20.0
    del epochs[20:]
    assert modular_mlp.first_perfect_epoch(ModularAddition(epochs=19)) == float("inf")


def test_a_short_run_of_superposition_ends_in_its_table_and_its_labelled_data(short_toy):
    run = short_toy
    verdicts = superposition_verdicts([run])
    assert {"T1(m=10, S=0.3)", "T5(m=10, S=0.3)", "T6(m=10, S=0.3)"} <= {verdict.id for verdict in verdicts}
    assert not all(verdict.holds for verdict in verdicts)
    (after,) = [verdict for verdict in verdicts if verdict.id == "T1.after(m=10, S=0.3)"]
    assert str(run.found.positions.tolist()) == after.ours
    assert after.holds == (50 in run.found.positions.tolist())
    assert superposition_dataset([run])["mode_feature"].shape == (1, 3, 50, 50)
    assert len(beta_table([run])) == 3


def test_the_order_of_favourites_is_compared_with_the_order_of_importance():
    in_order = torch.eye(6)[:, [0, 1, 2, 0, 3, 1]]
    assert order_of_importance(in_order) == pytest.approx(1.0)
    assert order_of_importance(torch.eye(6)[:, [3, 3, 2, 1, 3, 0]]) == pytest.approx(-1.0)
    assert math.isnan(order_of_importance(torch.eye(6)[:, [2, 2]]))


def test_a_spectrum_without_a_drop_reproduces_no_drop():
    """No tolerance for the ratio across a drop takes in 1, two equal eigenvalues."""
    drops = [
        claim
        for claim in (*TRANSFORMER_CLAIMS, *superposition_claims((10, 0.9), ""))
        if "drop after" in claim.sentence and claim.unit == "times"
    ]
    assert len(drops) == 5 and not [claim.id for claim in drops if 1.0 in claim.accept]


def test_a_short_run_of_the_transformer_ends_in_its_table_and_its_labelled_data(short_transformer):
    run = short_transformer
    verdicts = {verdict.id: verdict for verdict in transformer_verdicts(run)}
    assert run.steps == [0, 20] and set(run.tensors) >= {"embedding", "unembedding", "full"}
    assert not verdicts["X1"].holds and not verdicts["X2"].holds
    assert transformer_dataset(run)["eigenvalues"].shape == (10, 40)


def test_the_read_out_is_followed_closely_through_both_bumps_of_the_papers_derivative(monkeypatch):
    task = ModularTransformer(modulus=11)
    model = OneLayerTransformer(task, torch.Generator().manual_seed(0))
    epochs = [transformer_model.TransformerEpoch(at, model, 1.0, 1.0) for at in (0, 20, 580, 600, 1000, 1020, 1200)]
    monkeypatch.setattr(modular_transformer, "training", lambda task, every: iter(epochs))
    run = modular_transformer.transformer_run(task)
    assert run.kernel_steps == [0, 20, 580, 600, 1000, 1200] and len(run.sum_overlap) == 6
    notes = {verdict.id: verdict.note for verdict in transformer_verdicts(run)}
    assert "read every 20 epochs up to 1000" in notes["X10"]
    strongest = max(run.tensors["value"].held["modes 0-4"].values())
    assert f"{strongest:.1f} %" in notes["X6.V"]


def test_the_linearised_network_on_fresh_inputs_is_kernel_regression_of_the_error():
    setting = Superposition(hidden=3, features=6, examples=20, steps=200)
    model, _, inputs = trained_superposition(setting)
    fresh = sparse_inputs(setting, torch.Generator().manual_seed(10_000))
    kernel, cross = (entk_full(model, rows, inputs, dtype=torch.float64).reshape(120, 120) for rows in (inputs, fresh))
    with torch.no_grad():
        residual, outputs = (inputs - model(inputs)).flatten(), model(fresh).flatten()
    expected = linearised_prediction(kernel, cross, residual, outputs, ridge=RIDGE).reshape(20, 6)
    run = linearised_run(setting)
    exact = linearisation_fidelity(expected, outputs.reshape(20, 6), fresh)
    assert run.fidelity.r_squared == pytest.approx(exact.r_squared, rel=1e-5)
    assert run.fidelity.loss_ratio == pytest.approx(exact.loss_ratio, rel=1e-5)
    verdicts = {verdict.id: verdict for verdict in linearised_verdicts([run], [run], [run])}
    assert set(verdicts) == {"T7.R2", "T7.loss", "T7.gap", "T7.m5"}
    assert f"{run.fidelity.r_squared:.2f}" in str(verdicts["T7.m5"].baseline)


def test_the_superposition_network_lies_in_the_range_of_its_own_jacobian():
    """Homogeneous in its parameters: f = J (W / 2, b), so regression around zero and around f agree."""
    from tangentlens.kernels import jacobian_product

    setting = Superposition(hidden=3, features=6, examples=20, steps=50)
    model, _, inputs = trained_superposition(setting)
    direction = torch.cat([model.weight.detach().flatten() / 2, model.bias.detach()])
    images = jacobian_product(model, inputs, direction[:, None])
    torch.testing.assert_close(images.squeeze(-1), model(inputs).detach())


def test_what_is_kept_can_be_opened_again(tmp_path):
    from tangentlens.record import open_record
    from tangentlens.studies.lin2025.recording import kept

    run = modular_mlp.mlp_run(ModularAddition(modulus=5, width=16, epochs=10), every=10)
    told = kept(tmp_path, {"modular_mlp": mlp_dataset([run])}, {"grokking": replace(run.task, epochs=10)})
    assert str(tmp_path / "grokking") in told
    stored = xr.open_zarr(tmp_path / "lin2025.zarr", group="modular_mlp", consolidated=False)
    assert stored["test_accuracy"].shape == (1, 2)
    tree = open_record(tmp_path / "grokking")
    waves = tree["tangent"]["mode_feature"]
    assert waves.sizes["feature"] == 4 * 2 and str(waves["feature"].values[0]) == "a, k=1"
    assert waves.notnull().all(("mode", "feature")).sum() == 1  # at epoch 0 only
    assert tree["tangent"]["eigenvalues"].sizes["step"] == 2 and list(tree["tangent"]["family"].values)[0] == "a"
