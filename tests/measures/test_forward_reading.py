"""One reading holds every measure, its reference levels and its cautions."""

from __future__ import annotations

import pytest
import torch

from tangentlens.measures.forward_moments import forward_moments, merged
from tangentlens.measures.forward_reading import forward_reading
from tangentlens.measures.quality import utilisation
from tangentlens.measures.richness_reference import random_head_levels
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
    assert float(found.cumulative_quality[3]) == pytest.approx(1)
    assert float(found.cumulative_utilisation[3]) == pytest.approx(1)
    assert found.utilisation_dimension == pytest.approx(4)


def test_a_lazy_network_reads_lazy_and_extended() -> None:
    features, outputs, targets, _ = lazy_network(rows=500)
    found = forward_reading(forward_moments(features, outputs, targets, initial=torch.randn_like(features)))
    assert found.robust.distance > 0.3
    assert found.regime.name == "extended feature"
    assert found.interval is None


def classifier(centred: bool, bias: float = 0.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Collapsed features, faint noise in other directions, logits, labels; the constant is a feature unless centred."""
    features, targets, labels = collapsed(classes=5, copies=200, units=20)
    features = features - features.mean(0) if centred else features
    noise = 0.05 * torch.randn(features.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    head = torch.linalg.lstsq(features, targets - targets.mean(0) if centred else targets).solution
    return features + noise, (features + noise) @ head + bias, labels


@pytest.mark.parametrize("centred", [False, True])
def test_the_regime_does_not_depend_on_the_sum_of_the_logits(centred: bool) -> None:
    features, logits, labels = classifier(centred)
    faint = features @ torch.linalg.svd(features).Vh[-1:].T  # a function of the weakest feature
    found = [
        forward_reading(forward_moments(features, logits + shift, labels))
        for shift in (0, 0.001 * faint, faint, torch.tensor([3.0, 0, -1, 0, 2]))
    ]
    assert {one.regime.name for one in found} == {"minimal feature"}
    for one in found[1:]:
        torch.testing.assert_close(one.cumulative_utilisation, found[0].cumulative_utilisation, rtol=1e-6, atol=1e-8)
        assert str(one.regime) == str(found[0].regime)
    assert float(found[0].cumulative_utilisation[-1]) == pytest.approx(1, abs=1e-4)
    literal = utilisation(forward_moments(features, logits - logits.mean(1, keepdim=True) + 0.001 * faint, labels))
    assert float(literal[:5].sum()) < 0.95  # every direction counts alike, the unused one too


def test_the_variance_normalisation_of_a_classifier_ignores_the_sum_of_the_logits_as_well() -> None:
    features, logits, labels = classifier(centred=False)
    curves = [
        forward_reading(forward_moments(features, logits + shift, labels), normalisation="variance")
        for shift in (0, 5 * features[:, :1])
    ]
    torch.testing.assert_close(curves[0].cumulative_utilisation, curves[1].cumulative_utilisation)


def test_levels_and_interval_belong_to_the_convention_they_stand_beside() -> None:
    features, outputs, targets, _ = lazy_network(rows=500)
    groups = [forward_moments(features[g::5].relu(), 3 + outputs[g::5], targets[g::5]) for g in range(5)]
    found, every = forward_reading(groups), merged(groups)
    for convention, level in (("paper", found.random_head), ("robust", found.random_head_robust)):
        heads = random_head_levels(every, outputs=found.robust.rank, convention=convention)
        assert level == pytest.approx(float(heads.mean()))
    assert found.random_head != pytest.approx(found.random_head_robust, abs=1e-3)
    assert found.interval.value == pytest.approx(found.paper.distance) != pytest.approx(found.robust.distance)


def test_the_tolerance_of_the_robust_reading_is_an_argument() -> None:
    features, outputs, targets, _ = lazy_network()
    faint = torch.cat([outputs[:, :3], 0.01 * outputs[:, 3:]], 1)
    moments = forward_moments(features, faint)
    assert [forward_reading(moments, tolerance=share).robust.rank for share in (None, 0.1)] == [4, 3]


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
    assert found.regime.name == ("undetermined" if dead == "features" else "coefficient learning")


@pytest.mark.parametrize("constant", ["features", "outputs"])
def test_a_network_that_says_the_same_of_every_example_is_in_no_regime(constant: str) -> None:
    """Its one mode, the constant, would pass for a minimal feature, and rounding for a spread of features."""
    features, outputs, _, _ = lazy_network(rows=50)
    labels, level = torch.arange(50) % 3, torch.full((50, 1), 0.1)
    moments = forward_moments(
        level.expand(50, 8) if constant == "features" else features,
        level.expand(50, 3) if constant == "outputs" else outputs[:, :3],
        labels,
        initial=torch.randn(50, 8) if constant == "features" else torch.randn_like(features),
    )
    found = forward_reading(moments)
    assert found.regime.name == "undetermined" and "constant over the examples" in str(found.regime)
    if constant == "features":
        assert torch.tensor([found.collapse, found.similarity]).isnan().all() and "S_init nan" not in str(found.regime)
