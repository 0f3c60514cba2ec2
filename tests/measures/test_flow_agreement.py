"""Predicted against trained scores: correlation, error, what groups alone would give, and whether theory applies."""

from __future__ import annotations

from math import isnan

import pytest
import torch

from tangentlens.errors import BadInput
from tangentlens.measures.drift import drift
from tangentlens.measures.flow_agreement import flow_agreement

STILL = drift(torch.eye(3), torch.eye(3))


def test_correlation_and_relative_error_are_as_defined() -> None:
    predicted = torch.tensor([[1.0, -1.0], [2.0, -2.0], [-3.0, 3.0]])
    found = flow_agreement(predicted, 1.5 * predicted, STILL)
    assert found.correlation == pytest.approx(1) and found.relative_error == pytest.approx(0.5)
    assert isnan(found.of_groups) and "groups" not in found.verdict


def test_two_clusters_correlate_without_any_theory() -> None:
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    trained = torch.tensor([1.0, 1.1, 0.9, -1.0, -1.1, -0.9])
    found = flow_agreement(trained[torch.tensor([1, 2, 0, 4, 5, 3])], trained, STILL, groups=groups)
    assert found.correlation > 0.98 and found.of_groups > found.correlation  # the prediction is wrong inside of groups
    assert f"knowing their groups alone: {found.of_groups:.3f}" in found.verdict
    several = flow_agreement(
        torch.stack([trained, -trained], 1), torch.stack([trained, -trained], 1), STILL, groups=groups
    )
    assert several.of_groups == pytest.approx(found.of_groups)


def test_one_sentence_says_whether_the_theory_applies() -> None:
    scores = torch.tensor([1.0, 2.0])
    assert "training is close to lazy" in flow_agreement(scores, scores, STILL).verdict
    grown = drift(100 * torch.eye(3), torch.eye(3))
    assert (
        "correlation 1.000, relative error 0; theory does not apply here"
        in flow_agreement(scores, scores, grown).verdict
    )


def test_scores_of_other_tokens_are_refused() -> None:
    with pytest.raises(BadInput, match=r"got \(3,\) and \(2,\)"):
        flow_agreement(torch.ones(3), torch.ones(2), STILL)
    with pytest.raises(BadInput, match="a group for each of 3 tokens, got 2"):
        flow_agreement(torch.ones(3), torch.ones(3), STILL, groups=torch.tensor([0, 1]))
