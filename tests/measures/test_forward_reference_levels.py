"""What a value is read against: bias with few examples, random heads, unequal classes, conventions, regimes."""

from __future__ import annotations

import math

import pytest
import torch

from tangentlens.measures.collapse import collapse
from tangentlens.measures.feature_change import initial_similarity, kernel_distance, squared_norm
from tangentlens.measures.forward_moments import ForwardMoments, forward_moments, one_hot
from tangentlens.measures.jackknife import jackknife
from tangentlens.measures.regimes import RegimeThresholds, regime
from tangentlens.measures.richness import richness
from tangentlens.measures.richness_reference import (
    collapse_level,
    convention_caution,
    imbalance_caution,
    isotropic_level,
    random_head_levels,
    sample_caution,
)
from tests.measures.forward_examples import collapsed, isotropic, lazy_network

UNITS, OUTPUTS = 128, 5


def known_population(kind: str) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Standard deviations of Gaussian features, a head, and the exact D_LR of the population."""
    scales = torch.arange(1, UNITS + 1, dtype=torch.float64) ** -0.5
    head = torch.randn(UNITS, OUTPUTS, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    if kind == "near collapse":
        scales = torch.full((UNITS,), 0.08, dtype=torch.float64)
        scales[:OUTPUTS] = 1
        head = head * (torch.arange(UNITS) < OUTPUTS)[:, None]
    covariance = scales.square()
    gram = head.T @ (covariance[:, None] * head)
    inside = torch.linalg.solve(gram, head.T @ (covariance.square()[:, None] * head)).trace()
    distance = 1 - float(inside) / (float(covariance.norm()) * math.sqrt(OUTPUTS))
    return scales, head, distance


def draw(kind: str, rows: int, seed: int) -> list[ForwardMoments]:
    scales, head, _ = known_population(kind)
    features = torch.randn(rows, UNITS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scales
    return [forward_moments(features[group::10], features[group::10] @ head) for group in range(10)]


def robust(moments: ForwardMoments) -> float:
    return richness(moments, "robust").distance


def bias(kind: str, rows: int, corrected: bool) -> float:
    population = known_population(kind)[2]
    found = [jackknife(draw(kind, rows, seed), robust) for seed in range(8)]
    return sum(i.corrected if corrected else i.value for i in found) / len(found) - population


@pytest.mark.parametrize(("kind", "sign"), [("lazy", -1), ("near collapse", 1)])
def test_few_examples_bias_lazy_and_rich_networks_in_opposite_directions(kind: str, sign: int) -> None:
    few, more = bias(kind, 2 * UNITS, corrected=False), bias(kind, 16 * UNITS, corrected=False)
    assert sign * few > 0
    assert abs(more) < abs(few) / 3  # falls as 1/n, up to noise


@pytest.mark.parametrize("kind", ["lazy", "near collapse"])
def test_the_jackknife_removes_most_of_the_bias(kind: str) -> None:
    rows = 4 * UNITS
    assert abs(bias(kind, rows, corrected=True)) < 0.4 * abs(bias(kind, rows, corrected=False))


def test_the_jackknife_error_is_the_spread_over_draws() -> None:
    found = [jackknife(draw("lazy", 1000, seed), robust) for seed in range(30)]
    spread = torch.tensor([i.value for i in found]).std()
    error = sum(i.standard_error for i in found) / len(found)
    assert 0.6 < error / float(spread) < 1.7
    with pytest.raises(ValueError, match="at least 2"):
        jackknife(draw("lazy", 100, 0)[:1], robust)


@pytest.mark.parametrize("kind", ["lazy", "near collapse"])
def test_the_interval_holds_the_population_value_in_19_of_20_draws(kind: str) -> None:
    population, draws = known_population(kind)[2], 60
    found = [jackknife(draw(kind, 8 * UNITS, 1000 + seed), robust) for seed in range(draws)]
    held = sum(i.low <= population <= i.high for i in found)
    # at most two standard deviations of so many draws below 95 %
    assert 0.95 * draws - 2 * math.sqrt(0.05 * 0.95 * draws) <= held
    assert found[0].half_width == pytest.approx(2.2622 * found[0].standard_error, rel=1e-4)  # Student's t, 9 degrees


def test_a_random_head_on_isotropic_features_reads_the_isotropic_level() -> None:
    features, outputs = isotropic(units=60, rank=6)
    levels = random_head_levels(forward_moments(features, outputs), outputs=6)
    torch.testing.assert_close(levels, torch.full((8,), isotropic_level(6, 60), dtype=torch.float64))


def test_a_random_head_is_lazier_than_the_strongest_features_and_richer_than_the_weakest() -> None:
    scales = torch.linspace(3, 0.3, 40, dtype=torch.float64)
    features = isotropic(units=40, rank=4)[0] * scales
    strongest, weakest = (forward_moments(features, features[:, part]) for part in (slice(4), slice(-4, None)))
    random = float(random_head_levels(strongest, outputs=4).mean())
    assert robust(strongest) < random < robust(weakest)


def test_random_head_levels_are_those_of_features_times_a_random_matrix() -> None:
    features = lazy_network()[0]
    found = random_head_levels(forward_moments(features, features[:, :2]), outputs=2, draws=1, seed=3)
    head = torch.randn(features.shape[1], 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert float(found[0]) == pytest.approx(robust(forward_moments(features, features @ head)), abs=1e-10)


def test_unequal_classes_read_lazy_even_at_perfect_collapse() -> None:
    assert collapse_level([7] * 10) == pytest.approx(0, abs=1e-12)
    levels = [collapse_level([ratio] + [1] * 1) for ratio in (1, 10, 100)]
    assert levels[0] < 1e-9
    graded = [collapse_level(torch.logspace(0, -exponent, 10, dtype=torch.float64)) for exponent in (0, 1, 2)]
    assert graded[0] < 1e-9
    assert graded[1:] == [pytest.approx(0.166, abs=0.005), pytest.approx(0.355, abs=0.01)]
    assert imbalance_caution([50, 49, 51]) is None
    assert "0.3" in imbalance_caution(torch.logspace(0, -2, 10, dtype=torch.float64))


def test_too_few_examples_are_said() -> None:
    assert sample_caution(16 * 512, 512) is None
    assert "orderings are safe" in sample_caution(4 * 512, 512)
    assert "use at least 2048" in sample_caution(512, 512)


def test_conventions_that_disagree_are_said_and_the_second_recommended() -> None:
    features, targets, _ = collapsed()
    moments = forward_moments(features, targets, targets)
    assert convention_caution(richness(moments), richness(moments, "robust")) is None
    features, outputs, targets, _ = lazy_network()
    moments = forward_moments(features, outputs + 2, targets)
    assert "trust the second" in convention_caution(richness(moments), richness(moments, "robust"))


def test_a_frozen_feature_map_keeps_similarity_one_and_every_feature_measure_to_the_last_digit() -> None:
    features, outputs, targets, _ = lazy_network()
    features = features.float()
    start = forward_moments(features, outputs, targets, initial=features.clone())
    later = forward_moments(features, 3 * outputs + outputs.roll(1, dims=1), targets, initial=features.clone())
    assert initial_similarity(start) == 1.0
    assert initial_similarity(later) == 1.0
    assert torch.equal(start.second_moment("features", "features"), later.second_moment("features", "features"))
    assert torch.equal(random_head_levels(start, outputs=4), random_head_levels(later, outputs=4))
    same = forward_moments(features, outputs, targets, initial=features.clone())
    assert richness(same).distance == richness(start).distance


def test_similarity_to_the_start_ignores_scale_and_rotation_and_falls_for_new_features() -> None:
    features = lazy_network()[0]
    rotation, _ = torch.linalg.qr(torch.randn(24, 24, dtype=torch.float64))
    assert initial_similarity(forward_moments(2 * features @ rotation, initial=features)) == pytest.approx(1, abs=1e-12)
    assert initial_similarity(forward_moments(torch.randn_like(features), initial=features)) < 0.2


def test_nc1_is_zero_at_collapse_and_grows_with_noise() -> None:
    features, targets, _ = collapsed()
    noise = torch.randn_like(features)
    levels = [collapse(forward_moments(features + e * noise, targets=targets)) for e in (0, 0.1, 1)]
    assert levels[0] == pytest.approx(0, abs=1e-12)
    assert levels[1] < levels[2]
    assert collapse(forward_moments(5 * features + 0.5 * noise, targets=2 * targets)) == pytest.approx(levels[1])
    with pytest.raises(ValueError, match="one-hot"):
        collapse(forward_moments(features, targets=torch.randn(len(features), 1)))


def test_kernel_distance_ignores_scale_and_is_one_for_orthogonal_kernels() -> None:
    kernel = torch.randn(6, 9)
    kernel = kernel @ kernel.T
    assert kernel_distance(kernel, 3 * kernel) == pytest.approx(0, abs=1e-12)
    assert kernel_distance(kernel, 3 * kernel, centred=True) == pytest.approx(0, abs=1e-12)
    assert kernel_distance(torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 1.0]))) == 1
    with pytest.raises(ValueError, match="same examples"):
        kernel_distance(kernel, kernel[:3, :3])


def test_squared_norm_adds_up_all_parameters() -> None:
    assert squared_norm([torch.ones(2, 3), torch.tensor([2.0])]) == 10


def test_the_regime_follows_its_printed_thresholds_and_no_performance() -> None:
    unmoved = regime(similarity=0.995, utilisation_at_expected=0.2, utilisation_dimension=40.0, expected_modes=10)
    minimal = regime(similarity=0.3, utilisation_at_expected=0.97, utilisation_dimension=9.0, expected_modes=10)
    spread_out = regime(similarity=0.3, utilisation_at_expected=0.97, utilisation_dimension=13.0, expected_modes=10)
    assert [r.name for r in (unmoved, minimal, spread_out)] == [
        "coefficient learning", "minimal feature", "extended feature"]  # fmt: skip
    assert "0.995 >= 0.99" in str(unmoved) and "13.00 > 12 = 1.2 * 10" in str(spread_out)
    loose = RegimeThresholds(unmoved_similarity=0.999, minimal_utilisation=0.1, minimal_dimension=5.0)
    assert regime(similarity=0.995, utilisation_at_expected=0.2, utilisation_dimension=40.0, expected_modes=10,
                  thresholds=loose).name == "minimal feature"  # fmt: skip
    unknown = regime(similarity=None, utilisation_at_expected=0.2, utilisation_dimension=40.0, expected_modes=10)
    assert unknown.name == "extended feature" and "S_init" not in str(unknown)


def test_class_counts_of_weighted_examples_are_even() -> None:
    labels = torch.tensor([0] * 80 + [1] * 20)
    targets = one_hot(labels, 2)
    assert richness(forward_moments(targets, targets, targets)).distance == pytest.approx(
        collapse_level([80, 20]), abs=1e-12
    )


def test_examples_of_one_class_are_cautioned_and_have_no_nc1() -> None:
    assert "single class" in str(imbalance_caution([0, 30, 0]))
    labels = torch.zeros(30, dtype=torch.long)
    assert math.isnan(collapse(forward_moments(torch.randn(30, 4), torch.randn(30, 3), labels)))


@pytest.mark.parametrize("still", ["features", "initial"])
def test_features_that_vary_by_rounding_only_resemble_nothing(still: str) -> None:
    level = 10 + 1e-15 * torch.randn(40, 4).double()
    parts = {"features": torch.randn(40, 4).double(), "initial": torch.randn(40, 4).double(), still: level}
    assert parts[still].std() > 0
    assert math.isnan(initial_similarity(forward_moments(parts["features"], initial=parts["initial"])))
