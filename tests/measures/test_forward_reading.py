"""One reading holds every measure, its reference levels and its cautions."""

from __future__ import annotations

import pytest
import torch

from tangentlens.measures.forward_moments import forward_moments, merged
from tangentlens.measures.forward_reading import forward_reading
from tests.measures.forward_examples import collapsed, lazy_network


def test_a_collapsed_network_reads_rich_minimal_and_without_caution() -> None:
    features, targets, _ = collapsed(classes=4, copies=200, units=8)
    groups = [forward_moments(features[g::10], targets[g::10], targets[g::10], initial=torch.randn(80, 8))
              for g in range(10)]  # fmt: skip
    found = forward_reading(groups, initial=0.6)
    assert found.paper.distance == pytest.approx(0, abs=1e-9) and found.robust.distance == pytest.approx(0, abs=1e-9)
    assert found.regime.name == "minimal feature" and found.cautions == ()
    assert (found.rows, found.units, found.outputs, found.initial) == (800, 8, 4, 0.6)
    assert found.collapse == pytest.approx(0, abs=1e-9)
    assert found.interval.low <= 1e-9 and found.interval.standard_error < 1e-9
    assert found.random_head < found.isotropic
    assert float(found.cumulative_quality[3]) == float(found.cumulative_utilisation[3]) == pytest.approx(1)
    assert found.utilisation_dimension == pytest.approx(4)


def test_a_lazy_network_reads_lazy_and_extended() -> None:
    features, outputs, targets, _ = lazy_network(rows=500)
    found = forward_reading(forward_moments(features, outputs, targets, initial=torch.randn_like(features)))
    assert found.robust.distance > 0.3
    assert found.regime.name == "extended feature"
    assert found.interval is None


def test_frozen_features_are_coefficient_learning_whatever_the_head() -> None:
    features, outputs, targets, _ = lazy_network(rows=500)
    for head in (outputs, targets):
        found = forward_reading(forward_moments(features, head, targets, initial=features))
        assert found.similarity == 1.0 and found.regime.name == "coefficient learning"


def test_what_is_not_given_is_none_and_the_rest_is_read() -> None:
    features, outputs, _, _ = lazy_network()
    found = forward_reading(forward_moments(features, outputs))
    assert (found.similarity, found.collapse, found.cumulative_quality, found.initial) == (None,) * 4
    assert found.cumulative_utilisation[-1] == pytest.approx(1)


def test_regression_has_no_class_measures() -> None:
    features, outputs, _, _ = lazy_network()
    found = forward_reading(forward_moments(features, outputs[:, :1], outputs[:, 1:2]))
    assert found.collapse is None and found.cumulative_quality is not None


def test_few_examples_unequal_classes_and_offsets_are_cautioned() -> None:
    features, outputs, _, _ = lazy_network(rows=60)
    labels = torch.tensor([0] * 50 + [1] * 6 + [2] * 4)
    found = forward_reading(forward_moments(features, outputs[:, :3] + 5, labels))
    for word in ("too few", "unequal", "trust the second"):
        assert any(word in caution for caution in found.cautions)


def test_the_expected_modes_are_the_classes_or_for_one_output_the_constant_and_itself() -> None:
    features, outputs, targets, _ = lazy_network(outputs=4)
    assert forward_reading(forward_moments(features, outputs, targets)).expected_modes == 4
    assert forward_reading(forward_moments(features, outputs[:, :1], targets[:, :1])).expected_modes == 2


def test_groups_and_their_sum_read_the_same() -> None:
    features, outputs, targets, _ = lazy_network()
    groups = [forward_moments(features[g::3], outputs[g::3], targets[g::3]) for g in range(3)]
    by_groups, at_once = forward_reading(groups), forward_reading(merged(groups))
    assert by_groups.paper.distance == pytest.approx(at_once.paper.distance, abs=1e-12)
    assert by_groups.interval.standard_error > 0


@pytest.mark.parametrize("dead", ["features", "outputs"])
def test_a_dead_network_is_read_as_having_no_richness(dead: str) -> None:
    features, outputs, targets, _ = lazy_network()
    moments = forward_moments(
        0 * features if dead == "features" else features,
        0 * outputs if dead == "outputs" else outputs,
        targets,
        initial=features,
    )
    found = forward_reading(moments)
    assert torch.tensor([found.paper.distance, found.robust.distance]).isnan().all()
    assert found.regime.name == ("extended feature" if dead == "features" else "coefficient learning")
