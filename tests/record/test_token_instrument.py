"""The token instrument: labels against outputs, the bias of the kernel, negation, and foreseen scores."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tangentlens.errors import BadInput
from tangentlens.kernels import entk
from tangentlens.kernels.token_scores import label_scores
from tangentlens.measures.cooccurrence import cooccurrence
from tangentlens.record import Measure, Recorder, every, open_record
from tangentlens.record.instruments import kernel_prediction, negation, token_kernel, tokens

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
    with pytest.raises(BadInput, match="none twice"):
        token_kernel(["good", "good"], WORDS)
    with pytest.raises(BadInput, match="one token alone"):
        token_kernel(["good film", "bad film"], WORDS)


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


def test_foreseen_scores_are_recorded_at_the_steps_they_were_made_for(tmp_path: Path) -> None:
    measures = kernel_prediction({0: torch.zeros(2, 2), 1: torch.tensor([[0.0, 2.0], [4.0, 0.0]])})
    with Recorder(tmp_path / "run", _model(2), PROBE, measures, every(1)) as recorder:
        recorder.observe(0)
        recorder.observe(1)
        with pytest.warns(UserWarning, match="no scores were foreseen for step 2"):
            recorder.observe(2)
    data = open_record(tmp_path / "run")["tokens"].to_dataset()
    assert data["predicted_scores"][1].values.tolist() == [[-1.0, 1.0], [2.0, -2.0]]
