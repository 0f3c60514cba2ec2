"""The ready-made measures: each number in the record is the one the engine gives for the same network."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

from tangentlens.capture.probe import probe
from tangentlens.kernels import entk, layer_moments, spectrum
from tangentlens.measures.alignment import ansatz_correlation
from tangentlens.measures.alignment_readings import head_rows, rows_of
from tangentlens.measures.cooccurrence import cooccurrence
from tangentlens.measures.families import indicators
from tangentlens.measures.overlaps import subspace_overlap
from tangentlens.record import Recorder, Snapshot, at, errors, every, open_record
from tangentlens.record.instruments import ansatz, applicable, forward, tangent, tokens
from tangentlens.record.instruments.tangent import BLOCKS, Tangent
from tests.record.runs import small_model, small_probe, trained

EXAMPLES, STEPS = 24, 9


def run_of(run: Path, measures: list, steps: int = STEPS, **settings: object) -> tuple[xr.DataTree, nn.Module]:
    """A run of a small network and the network it ended with."""
    model = small_model()
    with Recorder(run, model, small_probe(EXAMPLES), measures, every(4), strict=True, **settings) as recorder:
        trained(model, recorder, range(steps))
    return open_record(run), model.eval()


def test_tangent_measures_are_those_of_the_kernel(tmp_path: Path) -> None:
    inputs, targets = small_probe(EXAMPLES)
    families = {"labels": indicators(targets), "first input": inputs[:, :1].double()}
    tree, model = run_of(tmp_path / "run", tangent(families, modes=20))
    data = tree["tangent"].to_dataset()
    kernel = entk(model, inputs).detach()
    modes = spectrum(kernel)
    assert np.allclose(data["eigenvalues"][-1], modes.eigenvalues[:20], rtol=1e-4)
    assert json.loads(tree.attrs["rungs"]) == {name: "rule" for name, _ in model.named_parameters()}
    assert np.isclose(data["trace"][-1], kernel.trace()) and np.allclose(data["layer_share"].sum("layer"), 1)
    initial = entk(small_model().eval(), inputs).detach()
    cosine = (kernel * initial).sum() / kernel.norm() / initial.norm()
    assert np.isclose(data["kernel_drift"][-1], 1 - cosine, atol=1e-6) and abs(data["kernel_drift"][0]) < 1e-6
    assert np.isclose(data["kernel_growth"][-1], kernel.norm() / initial.norm())
    whole = subspace_overlap(modes.eigenvectors[:, :20], families["first input"]).percent / 100
    assert np.isclose(data["captured"].sel(family="first input")[-1, -1], whole, atol=1e-3)
    assert np.allclose(data["share"].cumsum("mode"), data["captured"]) and data["share_chance"][0] == 1 / EXAMPLES


def test_overlaps_of_blocks_are_those_of_their_modes(tmp_path: Path) -> None:
    inputs, targets = small_probe(EXAMPLES)
    tree, model = run_of(tmp_path / "run", tangent({"labels": indicators(targets)}, modes=EXAMPLES), steps=5)
    data = tree["tangent"].to_dataset().isel(step=-1)
    found = int(np.isfinite(data["block_first"]).sum())
    assert found == int(np.isfinite(data["cliff_ratio"]).sum())
    for block in range(found):
        first, last = int(data["block_first"][block]), int(data["block_last"][block])
        share = data["share"].isel(mode=slice(first, last)).sum("mode")
        assert np.allclose(data["overlap"][block], share)
        assert np.isclose(data["overlap_chance"][block], (last - first) / EXAMPLES)
        fall = data["eigenvalues"][last - 1] / data["eigenvalues"][last]
        assert np.isclose(data["cliff_ratio"][block], fall, rtol=1e-6)


def test_overlaps_are_recorded_beside_shuffles_of_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family that lies in the first block stands far above them, one of noise does not."""
    levels = plateaus([10, 30, 160], [4.0, 3.0])
    draws, noise = torch.randn(200, 204, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).split(
        [200, 4], 1
    )
    vectors = torch.linalg.qr(draws).Q
    monkeypatch.setattr(Tangent, "_spectrum", lambda self, snapshot: (levels, vectors))
    monkeypatch.setattr(Tangent, "_kernel", lambda self, snapshot: torch.eye(200, dtype=torch.float64))
    families = {"inside": vectors[:, 3:7], "noise": noise}
    measures = {each.name.split("/")[1]: each for each in tangent(families, examples=None, modes=100)}
    step = Snapshot(0, small_model(), probe(torch.zeros(200, 6)))
    overlap, null = (measures[name].compute(step) for name in ("overlap", "overlap_null"))
    assert overlap[0, 0] > 0.95 and null[0, 0] < 0.3 and overlap[1, 0] < null[1, 0]
    assert (overlap[:2, 1] < 1.5 * null[:2, 1]).all() and torch.isnan(null[2:]).all()
    shuffled = subspace_overlap(vectors[:, :10], noise, permutations=500)
    assert shuffled.chance_percent < 100 * float(null[0, 1]) <= shuffled.null_highest_percent
    assert measures["overlap"].attrs["null_high"] == "overlap_null"


def test_modes_are_mapped_to_the_single_features_asked_for(tmp_path: Path) -> None:
    inputs, _ = small_probe(EXAMPLES)
    features = {"first": inputs[:, :1], "two others": inputs[:, 1:3]}
    tree, model = run_of(tmp_path / "run", tangent(features=features, modes=7), steps=1)
    found = tree["tangent/mode_feature"].isel(step=0)
    assert found.dims == ("mode", "feature") and found.shape == (7, 2) and "share" not in tree["tangent"]
    modes = spectrum(entk(small_model().eval(), inputs)).eigenvectors[:, :7]
    for name, feature in features.items():
        each = [subspace_overlap(modes[:, i : i + 1], feature) for i in range(7)]
        expected = [(one.percent / 100 * one.feature_dimension) ** 0.5 for one in each]
        assert np.allclose(found.sel(feature=name), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("matrix", "words"), [(torch.ones(5, 1), "24 examples"), (torch.ones(24, 2), "constant over the 24")]
)
def test_families_that_do_not_fit_the_probe_are_refused_in_words(
    matrix: torch.Tensor, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=words):
        run_of(tmp_path / "run", tangent({"mine": matrix}), steps=1)


def plateaus(sizes: list[int], falls: list[float]) -> torch.Tensor:
    """Blocks of nearly equal eigenvalues of these sizes, falling by these ratios after each but the last."""
    levels = torch.cumprod(torch.tensor([1.0, *(1 / fall for fall in falls)], dtype=torch.float64), 0)
    return levels.repeat_interleave(torch.tensor(sizes)) * torch.exp(-1e-3 * torch.arange(sum(sizes)).double())


class Read(Snapshot):
    """A step whose spectrum is known."""

    def __init__(self, values: torch.Tensor, initial: torch.Tensor | None = None) -> None:
        model, first = small_model(), None if initial is None else Read(initial)
        super().__init__(0, model, probe(torch.zeros(1, 6)), beginning=lambda: first or self)
        self.values = values

    def reading(self, function: Callable[..., Any], *settings: Any) -> Any:
        if function.__name__ == "_spectrum":
            return self.values, torch.eye(len(self.values), dtype=torch.float64)
        return super().reading(function, *settings)


def test_of_many_cliffs_the_largest_are_recorded_in_order_of_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tangent, "_floor", lambda self, snapshot: 1e-12)
    of, falls = Tangent(None, None, 150), [1.5] * 6 + [4.0] + [1.5, 3.0] + [2.0] * 4
    recorded = of.cliffs(Read(plateaus([20] * 14, falls)))
    assert recorded.positions.tolist()[-6:] == [140, 180, 200, 220, 240, 260] and len(recorded) == BLOCKS
    assert of.blocks(Read(plateaus([20] * 14, falls)))[-1] == (240, 260)


def test_cliffs_that_the_initial_network_lacks_are_recorded_as_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tangent, "_floor", lambda self, snapshot: 1e-12)
    step = Read(plateaus([40, 60, 100], [4.0, 3.0]), 1e-3 * plateaus([40, 160], [4.0]))
    assert Tangent(None, None, 100).learned(step).tolist() == [0.0, 1.0]
    measures = {measure.name: measure for measure in tangent()}
    assert measures["tangent/cliff_learned"].needs == {"initial"}


def test_a_subset_of_the_probe_is_the_same_at_every_step(tmp_path: Path) -> None:
    _, targets = small_probe(EXAMPLES)
    tree, _ = run_of(tmp_path / "run", tangent({"labels": indicators(targets)}, examples=9), steps=1)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(EXAMPLES, generator=generator)[:9].sort().values
    inputs, _ = small_probe(EXAMPLES)
    expected = entk(small_model().eval(), inputs[chosen]).trace()
    assert np.isclose(tree["tangent/trace"].values[0], expected.item()) and tree["tangent"].sizes["mode"] == 9


def test_forward_measures_start_from_the_initial_features(tmp_path: Path) -> None:
    tree, model = run_of(tmp_path / "run", forward())
    data = tree["forward"].to_dataset()
    assert np.isclose(data["initial_alignment"][0], 1) and data["initial_alignment"][-1] < 1
    assert np.isclose(data["richness"][0], data["richness_initial"][0])
    assert np.ptp(data["richness_initial"].values) == 0 and data["richness"].attrs["initial"] == "richness_initial"
    inside = 1 - data["inside_share"] * np.sqrt(data["participation_ratio"] / data["output_rank"])
    assert np.isfinite(inside).all()
    assert (data["cumulative_quality"].diff("mode") >= -1e-9).all() and (
        data["cumulative_utilisation"] <= 1 + 1e-9
    ).all()
    features = torch.relu(model[0](small_probe(EXAMPLES)[0])).detach().double()
    eigenvalues = torch.linalg.eigvalsh(features.T @ features / EXAMPLES).flip(0)
    kept = data["eigenvalues"][-1].dropna("mode")
    assert np.allclose(kept, eigenvalues[: len(kept)], rtol=1e-4)
    attrs = tree["forward"].attrs
    assert (attrs["layer"], attrs["features"], attrs["outputs"]) == ("2", 8, 3)
    assert json.loads(data["regime"].attrs["thresholds"])["unmoved_similarity"] == 0.99
    assert set(np.unique(data["regime"])) <= {0, 1, 2}
    assert (data["richness_low"] < data["richness_high"]).all() and data["richness"].attrs["low"] == "richness_low"
    assert f"{EXAMPLES} examples for 8 units: too few" in attrs["cautions"]


def test_ansatz_measures_are_those_of_the_hidden_layers(tmp_path: Path) -> None:
    tree, model = run_of(tmp_path / "run", ansatz(alignment=True))
    data = tree["ansatz"].to_dataset()
    assert data["layer"].values.tolist() == ["0"]  # the head is left out
    moments = layer_moments(model, small_probe(EXAMPLES)[0])["0"]
    expected = ansatz_correlation(moments.weight.detach(), moments.ptk_covariance.detach())
    assert np.isclose(data["uncentred"].sel(layer="0")[-1], expected.item(), atol=1e-5)
    assert np.isnan(data["centred"][0]) and np.isfinite(data["centred"][-1]) and data["weight_change"][0] == 0
    assert (data["uncentred_null_low"] <= data["uncentred_null_high"]).all()
    assert abs(data["ptk_drift"][0]) < 1e-6 < data["ptk_drift"][-1]
    layer = tree["ansatz/layers/0"].to_dataset()
    assert np.allclose(layer["nfm"][-1], (moments.weight.T @ moments.weight).detach(), atol=1e-5)
    assert np.allclose(layer["agop"][-1], moments.agop.detach() / moments.rows, atol=1e-5)
    assert layer["alignment"].dims == ("step", "mode", "feature")
    assert np.allclose(layer["alignment_chance"], 1 / 8) and layer["alignment"].attrs["chance"] == "alignment_chance"
    assert data["ptk_top_overlap"][0] == pytest.approx(1) and data["ptk_scale"][0] == pytest.approx(1)
    assert (data["ptk_top_overlap_chance"] == 5 / 8).all() and data["ptk_scale"][-1] != data["ptk_scale"][0]


def test_random_bases_of_the_ansatz_differ_from_step_to_step_and_repeat_with_the_run(tmp_path: Path) -> None:
    still = {"uncentred_null": [], "uncentred": []}
    for name in ("one", "two"):
        model = small_model()
        with Recorder(tmp_path / name, model, small_probe(EXAMPLES), ansatz(), at(0, 1), strict=True) as recorder:
            recorder.observe(0)
            recorder.observe(1)  # the same network once more
        data = open_record(tmp_path / name)["ansatz"].to_dataset()
        for reading, seen in still.items():
            seen.append(data[reading].values[:, 0])
    assert (still["uncentred"][0][0] == still["uncentred"][0]).all()
    assert still["uncentred_null"][0][0] != still["uncentred_null"][0][1]
    assert (still["uncentred_null"][0] == still["uncentred_null"][1]).all()


def test_the_ansatz_is_recorded_as_it_was_asked_for(tmp_path: Path) -> None:
    asked = ansatz(initial_kernel=True, centering="entries", agop_power=0.5, draws=19)
    tree, model = run_of(tmp_path / "run", asked)
    data = tree["ansatz"].to_dataset()
    moments = layer_moments(model, small_probe(EXAMPLES)[0])["0"]
    expected = ansatz_correlation(moments.weight, moments.ptk_covariance, centering="entries", agop_power=0.5)
    assert np.isclose(data["uncentred"].sel(layer="0")[-1], expected.item(), atol=1e-5)
    for name in ("centred_initial_kernel", "centred_kernel_change"):
        assert np.isfinite(data[name][-1]) and np.isfinite(data[f"{name}_null_high"][-1])
        assert data[name].attrs["null"] == f"{name}_null"
    with pytest.raises(ValueError, match=r"at least 0, got -1"):
        ansatz(draws=-1)


class Tied(nn.Module):
    """An embedding that is the read-out, too, and two linear heads side by side."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embedding, self.inside = nn.Embedding(12, 8), nn.Linear(8, 8)
        self.tied, self.first = tied, nn.Linear(8, 12, bias=False)
        self.second = nn.Linear(8, 5)
        if tied:
            self.first.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inside(self.embedding(tokens)).mean(1))
        return self.first(hidden) if self.tied else torch.cat([self.first(hidden), self.second(hidden)], 1)


@pytest.mark.parametrize("tied", [True, False])
def test_read_outs_are_no_layers_of_the_ansatz_tied_or_side_by_side(tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = Tied(tied), torch.randint(0, 12, (EXAMPLES, 5))
    with Recorder(tmp_path / "run", model, inputs, ansatz(), at(0), strict=True) as recorder:
        recorder.observe(0)
    assert set(open_record(tmp_path / "run")["ansatz"].to_dataset()["layer"].values.tolist()) == {"inside"}


class Attentive(nn.Module):
    """Packed self-attention over an input cut into two tokens, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        tokens = inputs[:, :4].reshape(-1, 2, 2).repeat(1, 1, 2)
        return self.head(self.attention(tokens, tokens, tokens, need_weights=False)[0].mean(1))


def test_every_head_of_a_packed_weight_is_a_layer_of_the_record(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = Attentive(), torch.randn(EXAMPLES, 4)
    apart = partial(head_rows, heads=2)
    measures = ansatz(parts={"*.in_proj_weight": apart}, draws=2)
    with Recorder(tmp_path / "run", model, inputs, measures, at(0), strict=True) as recorder:
        recorder.observe(0)
    data = open_record(tmp_path / "run")["ansatz"].to_dataset()
    name = "attention.in_proj_weight"
    heads = [f"{name} {part} {head}" for part in ("query", "key", "value") for head in (0, 1)]
    assert set(heads) <= set(data["layer"].values.tolist()) and name not in data["layer"].values
    moments = layer_moments(model.eval(), inputs)[name]
    weight, kernel = rows_of(moments.weight.detach(), moments.ptk_covariance.detach(), slice(6, 8))
    expected = ansatz_correlation(weight, kernel).item()
    assert np.isclose(data["uncentred"].sel(layer=f"{name} key 1")[0], expected, atol=1e-5)
    with pytest.raises(ValueError, match="matches no layer"):
        Recorder(tmp_path / "other", model, inputs, ansatz(parts={"none*": apart}), at(0), strict=True).observe(0)


def test_token_measures_follow_the_models_own_scores(tmp_path: Path) -> None:
    words = ["good", "fine", "bad", "dull", "film"]
    numbers = {word: index for index, word in enumerate(words)}
    corpus = [([word, "film"], label) for word, label in zip(words[:4] * 6, [1, 1, 0, 0] * 6, strict=True)]
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(5, 4, mode="sum"), nn.Linear(4, 2))
    inputs = torch.tensor([[numbers[word] for word in document] for document, _ in corpus])
    targets = torch.tensor([label for _, label in corpus])
    measures = tokens(words, numbers, labels=["negative", "positive"], counts=cooccurrence(corpus))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    with Recorder(tmp_path / "run", model, (inputs, targets), measures, at(0, 60), strict=True) as recorder:
        for step in range(61):
            recorder.observe(step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    data = open_record(tmp_path / "run")["tokens"].to_dataset()
    scores = data["label_scores"].isel(step=-1)
    assert scores.sel(token="good", label="positive") > 0 > scores.sel(token="dull", label="positive")
    assert np.allclose(data["label_scores"].sum("label"), 0, atol=1e-5)
    assert data["sign_accuracy"][-1] == 1 and data["sign_accuracy"].attrs["chance"] == "sign_accuracy_chance"
    assert data["cooccurrence"].sel(token="film").values.tolist() == [12, 12]
    assert data["polarity"].sel(token=["good", "bad", "film"]).values.tolist() == [1, -1, 0]
    assert (data["score_correlation"][-1] > 0.9).all() and (abs(data["asymmetry"]) <= 1).all()


def test_the_default_instruments_are_those_that_apply(tmp_path: Path) -> None:
    def groups(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor | None) -> set[str]:
        found = applicable(model.eval(), probe(inputs), targets, None)
        return {measure.name.split("/")[0] for measure in found}

    inputs, targets = small_probe(EXAMPLES)
    assert groups(small_model(), inputs, targets) == {"training", "forward", "tangent", "ansatz"}
    no_head = nn.Sequential(nn.Linear(6, 3), nn.Softplus(), nn.BatchNorm1d(3))
    assert "training" in groups(no_head, inputs, None)
    frozen = small_model().requires_grad_(False)
    assert groups(frozen, inputs, None) == {"training", "forward"}


def test_default_instruments_run_on_all_kinds_of_small_models_without_a_failure(tmp_path: Path) -> None:
    inputs, targets = small_probe(EXAMPLES)
    images = torch.randn(12, 1, 6, 6)
    convolutional = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    regression = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    cases = {
        "classes": (small_model(), (inputs, targets)),
        "no targets": (small_model(), inputs),
        "one number": (regression, (inputs, inputs[:, :1] * 2)),
        "images": (convolutional, (images, targets[:12])),
        "dropout": (nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3)), (inputs, targets)),
    }
    for name, (model, given) in cases.items():
        with Recorder(tmp_path / name, model, given, schedule=every(1)) as recorder:
            recorder.observe(0)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.1 * torch.randn_like(parameter))
            recorder.observe(1)
        tree = open_record(tmp_path / name)
        assert errors(tree) == [], name
        assert set(tree.children) == {"training", "forward", "tangent", "ansatz", "overhead"}, name


def test_a_budget_leaves_expensive_instruments_out_of_all_but_the_first_and_last_step(tmp_path: Path) -> None:
    import time

    from tangentlens.record import Measure

    slow = Measure("slow/value", (), lambda snapshot: time.sleep(0.05) or 1.0)
    quick = Measure("training/value", (), lambda snapshot: 1.0)
    model = small_model()
    with Recorder(tmp_path / "run", model, small_probe(), [slow, quick], every(1), budget=0.01) as recorder:
        trained(model, recorder, range(8))
        recorder.observe(8)
    tree = open_record(tmp_path / "run")
    measured = np.isfinite(tree["slow/value"].values)
    assert measured[0] and not measured[1:8].any() and np.isfinite(tree["training/value"].values).all()


def test_token_words_outside_the_vocabulary_are_named_in_the_record(tmp_path: Path) -> None:
    model = nn.Sequential(nn.EmbeddingBag(2, 4, mode="sum"), nn.Linear(4, 2))
    measures = tokens(["good", "unknown"], {"good": 0})
    with (
        pytest.warns(UserWarning, match="'unknown' .* is not among the 1 words"),
        Recorder(tmp_path / "run", model, torch.tensor([[0], [1]]), measures, every(1)) as recorder,
    ):
        recorder.observe(0)
    assert errors(open_record(tmp_path / "run"))[0]["measure"] == "tokens/label_scores"
