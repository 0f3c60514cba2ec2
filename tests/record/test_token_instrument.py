"""The token instrument: labels against outputs, the bias of the kernel, negation, and foreseen scores."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
import xarray as xr
from torch import nn

from tangentlens.errors import BadInput
from tangentlens.kernels import entk
from tangentlens.kernels.infinite_width import mlp_coefficients
from tangentlens.kernels.token_scores import label_scores
from tangentlens.measures.cooccurrence import cooccurrence
from tangentlens.measures.drift import drift
from tangentlens.record import Measure, Recorder, every, open_record
from tangentlens.record.instruments import kernel_prediction, negation, token_kernel, tokens
from tangentlens.studies.sun2023.models import TokenMLP

WORDS = {"good": 0, "bad": 1, "film": 2}
COUNTS = cooccurrence([(["good", "film"], "up"), (["bad", "film"], "down")] * 6)
PROBE = torch.tensor([[0, 2], [1, 2]])


def _model(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.EmbeddingBag(3, 4, mode="sum"), nn.Linear(4, outputs))


def test_one_logit_is_shared_out_between_two_labels(tmp_path: Path) -> None:
    model = _model(1)
    measures = tokens(["good", "bad"], WORDS, labels=["down", "up"], counts=COUNTS)
    with Recorder(tmp_path / "run", model, PROBE, measures, every(1), strict=True) as recorder:
        recorder.observe(0)
    data = open_record(tmp_path / "run")["tokens"].to_dataset().isel(step=0)
    logit = label_scores(model, ["good", "bad"], encode=WORDS)[:, 0]
    assert torch.allclose(torch.tensor(data["label_scores"].sel(label="up").values), logit / 2)
    assert float(data["sign_accuracy"]) == float((logit[0] > 0) + (logit[1] < 0)) / 2


def test_labels_that_do_not_match_the_outputs_cost_their_own_measures_and_no_others(tmp_path: Path) -> None:
    beside = Measure("other/one", (), lambda snapshot: 1.0)
    measures = [*tokens(["good", "bad"], WORDS, counts=COUNTS), beside]
    with Recorder(tmp_path / "run", _model(3), PROBE, measures, every(1)) as recorder:
        with pytest.warns(UserWarning, match=r"the model has 3 outputs and there are 2 labels, \['down', 'up'\]"):
            recorder.observe(0)
        recorder.observe(1)
    tree = open_record(tmp_path / "run")
    assert tree["other/one"].values.tolist() == [1.0, 1.0]
    assert "label_scores" not in tree["tokens"].data_vars


def test_words_and_labels_that_cannot_be_scored_are_refused_before_training() -> None:
    with pytest.raises(BadInput, match="at least one word"):
        tokens([], WORDS)
    with pytest.raises(BadInput, match=r"labels= names \['up'\], the corpus was counted by \['down', 'up'\]"):
        tokens(["good"], WORDS, labels=["up"], counts=COUNTS)
    with pytest.raises(BadInput, match="1 words never occur in the corpus, \\['awful'\\]"):
        tokens(["good", "awful"], WORDS, counts=COUNTS)


def test_the_bias_ratio_is_the_kernel_between_different_words_over_its_diagonal(tmp_path: Path) -> None:
    model = _model(2)
    with Recorder(tmp_path / "run", model, PROBE, token_kernel(list(WORDS), WORDS), every(1), strict=True) as recorder:
        recorder.observe(0)
        with torch.no_grad():
            model[1].weight.mul_(2)
        recorder.observe(1)
    data = open_record(tmp_path / "run")["tokens"].to_dataset()
    kernel = entk(model, torch.tensor([[0], [1], [2]]))
    expected = (kernel.sum() - kernel.trace()) / 6 / (kernel.trace() / 3)
    assert float(data["bias_ratio"][1]) == pytest.approx(float(expected), rel=1e-5)
    assert float(data["kernel_drift"][0]) == pytest.approx(0, abs=1e-6) and float(data["kernel_drift"][1]) > 1e-4
    assert data["kernel_drift"].attrs["limit"] == pytest.approx(0.1) and data["kernel_change"].attrs["limit"] == 0.5
    moved = drift(entk(model, PROBE), entk(_model(2), PROBE))
    assert float(data["kernel_change"][1]) == pytest.approx(moved.change, rel=1e-5)
    with pytest.raises(BadInput, match="none twice"):
        token_kernel(["good", "good"], WORDS)
    with pytest.raises(BadInput, match="one token alone"):
        token_kernel(["good film", "bad film"], WORDS)


def test_the_bias_foreseen_stands_beside_the_one_seen_in_the_same_units(tmp_path: Path) -> None:
    theory = mlp_coefficients().bias_ratio
    model = TokenMLP(13, 1024, seed=0)
    data = _told(
        token_kernel(list(range(1, 13)), theory=theory), model, tmp_path / "run", torch.tensor([[1, 2], [3, 4]])
    )
    assert data["bias_ratio"].attrs["theory"] == "bias_ratio_theory"
    assert float(data["bias_ratio_theory"]) == theory == pytest.approx(0.1061, abs=1e-4)
    assert float(data["bias_ratio"]) == pytest.approx(theory, abs=0.01)


def test_the_recorded_negation_is_the_grid_of_the_models_own_scores(tmp_path: Path) -> None:
    words = {"not": 0, "good": 1, "fine": 2, "bad": 3}
    model = nn.Sequential(nn.EmbeddingBag(4, 4, mode="sum"), nn.Linear(4, 1, bias=False))
    measures = negation(["good", "fine"], ["bad"], "not", words, labels=["down", "up"])
    with Recorder(tmp_path / "run", model, torch.tensor([[1, 3]]), measures, every(1), strict=True) as recorder:
        recorder.observe(0)
    data = open_record(tmp_path / "run")["tokens"].to_dataset().isel(step=0).sel(label="up")
    phrases = ["good", "fine", "not good", "not fine", "bad", "not bad"]
    scores = label_scores(model, phrases, encode=words)[:, 0] / 2
    expected = [scores[:2].mean(), scores[2:4].mean(), scores[4], scores[5]]
    assert data["negation"].values.tolist() == pytest.approx([float(value) for value in expected], abs=1e-6)
    assert data["negation_additive"].values == pytest.approx(data["negation"].values, abs=1e-6)  # a bag adds up
    assert data["negation"].attrs["null"] == "negation_additive"
    with pytest.raises(BadInput, match="0 positive and 1 negative"):
        negation([], ["bad"], "not", words)
    numbered = negation([1], [3], 0, words)
    with Recorder(tmp_path / "numbered", model, torch.tensor([[1, 3]]), numbered, every(1), strict=True) as recorder:
        recorder.observe(0)
    data = open_record(tmp_path / "numbered")["tokens"].to_dataset().isel(step=0, label=0)
    assert data["negation"].values == pytest.approx(2 * scores[[0, 2, 4, 5]].numpy(), abs=1e-6)


def test_foreseen_scores_are_recorded_at_the_steps_they_were_made_for(tmp_path: Path) -> None:
    measures = kernel_prediction({0: torch.zeros(2, 2), 1: torch.tensor([[0.0, 2.0], [4.0, 0.0]])})
    with Recorder(tmp_path / "run", _model(2), PROBE, measures, every(1)) as recorder:
        recorder.observe(0)
        recorder.observe(1)
        with pytest.warns(UserWarning, match="no scores were foreseen for step 2"):
            recorder.observe(2)
    data = open_record(tmp_path / "run")["tokens"].to_dataset()
    assert data["predicted_scores"][1].values.tolist() == [[-1.0, 1.0], [2.0, -2.0]]


def _told(measures: list[Measure], model: nn.Module, folder: Path, probe: torch.Tensor = PROBE) -> xr.Dataset:
    with Recorder(folder, model, probe, measures, every(1), strict=True) as recorder:
        recorder.observe(0)
    return open_record(folder)["tokens"].to_dataset().isel(step=0)


NEGATED = [(["not", "good"], "down"), (["not", "bad"], "up"), (["good", "film"], "up"), (["bad", "film"], "down")] * 8


@pytest.mark.parametrize("phrases", [["not good", "not bad"], [("not", "good"), ("not", "bad")]])
def test_ngrams_are_named_by_their_words_and_counted_as_such(phrases: list, tmp_path: Path) -> None:
    words = {**WORDS, "not": 3}
    model = nn.Sequential(nn.EmbeddingBag(4, 4, mode="sum"), nn.Linear(4, 2))
    measures = tokens(phrases, words, counts=cooccurrence(NEGATED, ngram=2))
    data = _told(measures, model, tmp_path / "run")
    assert data["token"].values.tolist() == ["not good", "not bad"]
    assert data["cooccurrence"].values.tolist() == [[8, 0], [0, 8]] and data["polarity"].values.tolist() == [-1, 1]
    with pytest.raises(BadInput, match=r"each word once, got \['not good'\]"):
        tokens(["not good", ("not", "good")], words)


def _leaning() -> nn.Module:
    """Output 0 scores "good" and output 1 scores "bad"."""
    model = nn.Sequential(nn.EmbeddingBag(3, 2, mode="sum"), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        model[1].weight.copy_(torch.eye(2))
    return model


def test_counts_follow_the_labels_of_the_model_in_whatever_order_they_were_counted(tmp_path: Path) -> None:
    data = _told(tokens(list(WORDS), WORDS, labels=["up", "down"], counts=COUNTS), _leaning(), tmp_path / "named")
    assert data["cooccurrence"].sel(token="good").values.tolist() == [6, 0]
    assert float(data["sign_accuracy"]) == 1 and data["score_correlation"].values.min() > 0.9
    number = {"up": 0, "down": 1}
    numbered = cooccurrence([(words, number[label]) for words, label in NEGATED[2:4] * 6], labels=(1, 0))
    data = _told(tokens(list(WORDS), WORDS, labels=["up", "down"], counts=numbered), _leaning(), tmp_path / "numbered")
    assert float(data["sign_accuracy"]) == 1
    with pytest.raises(BadInput, match=r"labels= names \['yes', 'no'\], the corpus was counted by \['down', 'up'\]"):
        tokens(["good"], WORDS, labels=["yes", "no"], counts=COUNTS)


def test_scores_are_ranked_against_the_statistic_asked_for(tmp_path: Path) -> None:
    # by count "film" is first, by rate "good" is: the model follows the rate
    corpus = [(["good"], "up")] * 4 + [(["bad"], "down")] * 4 + [(["film"], "up")] * 20 + [(["film"], "down")] * 12
    seen = {}
    for statistic in ("count", "rate", "pmi"):
        measures = tokens(
            list(WORDS), WORDS, labels=["up", "down"], counts=cooccurrence(corpus), statistic=statistic, minimum=3
        )  # type: ignore[arg-type]
        data = _told(measures, _leaning(), tmp_path / statistic)["score_correlation"]
        assert data.attrs["statistic"] == statistic
        seen[statistic] = data.values.tolist()
    assert seen == {"count": pytest.approx([0.5, 0.5]), "rate": pytest.approx([1, 1]), "pmi": pytest.approx([1, 1])}
    with pytest.raises(BadInput, match="statistic is one of count, rate, pmi, got 'frequency'"):
        inspect.unwrap(tokens)(["good"], WORDS, counts=COUNTS, statistic="frequency")


def test_initial_scores_are_taken_off_on_request(tmp_path: Path) -> None:
    model = _leaning()
    measures = tokens(list(WORDS), WORDS, labels=["up", "down"], counts=COUNTS, minus_initial=True)
    with Recorder(tmp_path / "run", model, PROBE, measures, every(1)) as recorder:
        recorder.observe(0)
        with torch.no_grad():
            model[1].weight.mul_(3)
        recorder.observe(1)
    scores = open_record(tmp_path / "run")["tokens"]["label_scores"]
    assert scores[0].values.tolist() == [[0, 0]] * 3 and scores[1].values.tolist() == [[1, -1], [-1, 1], [0, 0]]


def test_a_model_that_says_one_label_to_everything_is_at_the_chance_of_the_signs(tmp_path: Path) -> None:
    model = _leaning()
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias = nn.Parameter(torch.tensor([-1.0, 1.0]))
    unequal = cooccurrence([(["good"], "up"), (["film"], "up"), (["bad"], "down")] * 8)
    data = _told(tokens(list(WORDS), WORDS, counts=unequal), model, tmp_path / "run")
    assert float(data["sign_accuracy"]) == float(data["sign_accuracy_chance"]) == 0.5


def test_words_that_all_lean_one_way_cost_the_signs_and_not_the_scores(tmp_path: Path) -> None:
    with (
        Recorder(
            tmp_path / "run", _model(2), PROBE, tokens(["good", "film"], WORDS, counts=COUNTS), every(1)
        ) as record,
        pytest.warns(UserWarning, match="expected words on both sides, got 1 positive and 0 negative"),
    ):
        record.observe(0)
    found = open_record(tmp_path / "run")["tokens"].data_vars
    assert "label_scores" in found and "sign_accuracy" not in found
