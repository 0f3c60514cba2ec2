"""Modes, quality, utilisation, effective dimension: closed forms, limits and what holds out of sample."""

from __future__ import annotations

import pytest
import torch

from tangentlens.measures.effective_dimension import effective_dimension
from tangentlens.measures.eigenfunctions import (
    eigenfunctions,
    eigenfunctions_dual,
    isometric_features,
    relative_eigenvalues,
)
from tangentlens.measures.forward_moments import forward_moments, one_hot
from tangentlens.measures.nystrom import nystrom_error
from tangentlens.measures.quality import (
    adjusted_quality,
    chance_quality,
    cumulative,
    held_out_quality,
    quality,
    utilisation,
)
from tangentlens.measures.richness import richness
from tests.measures.forward_examples import collapsed, lazy_network


def test_modes_are_orthonormal_functions_with_the_eigenvalues_of_the_operator() -> None:
    features = lazy_network()[0]
    modes = eigenfunctions(forward_moments(features))
    values = modes(features)
    gram = values.T @ values / len(values)
    torch.testing.assert_close(gram, torch.eye(len(gram), dtype=torch.float64), rtol=0, atol=1e-9)
    applied = features @ (features.T @ values) / len(values)  # T[e_k] at the examples
    torch.testing.assert_close(applied, values * modes.eigenvalues, rtol=1e-9, atol=1e-9)


def test_a_feature_used_twice_has_one_unresolved_mode() -> None:
    features = lazy_network(units=5)[0]
    modes = eigenfunctions(forward_moments(torch.cat([features, features[:, :1]], dim=1)))
    assert (len(modes.eigenvalues), modes.unresolved) == (5, 1)


def test_float32_features_resolve_fewer_modes_than_float64_ones() -> None:
    scales = torch.tensor([1, 0.1, 0.01, 1e-4], dtype=torch.float64)
    features = torch.randn(400, 4, dtype=torch.float64) * scales
    assert len(eigenfunctions(forward_moments(features)).eigenvalues) == 4
    assert len(eigenfunctions(forward_moments(features.float())).eigenvalues) == 3


def test_the_dual_form_gives_the_same_modes() -> None:
    features = lazy_network(rows=60, units=40)[0]
    primal, dual = eigenfunctions(forward_moments(features)), eigenfunctions_dual(features)
    torch.testing.assert_close(dual.eigenvalues, primal.eigenvalues)
    overlap = (dual(features).T @ primal(features) / len(features)).abs()
    torch.testing.assert_close(overlap, torch.eye(40, dtype=torch.float64), rtol=0, atol=1e-8)


def test_isometric_features_change_no_in_sample_measure() -> None:
    features, outputs, targets, _ = lazy_network(rows=50, units=400, outputs=4)
    small = isometric_features(features)
    assert small.shape == (50, 50)
    full, reduced = (forward_moments(values, outputs, targets) for values in (features, small))
    assert richness(full).distance == pytest.approx(richness(reduced).distance, abs=1e-10)
    torch.testing.assert_close(quality(full)[:40], quality(reduced)[:40], rtol=0, atol=1e-9)


def test_modes_fitted_on_all_examples_have_no_nystrom_error() -> None:
    features = lazy_network()[0]
    every = forward_moments(features)
    modes = eigenfunctions(every)
    error = nystrom_error(every, every, modes, modes, modes=5)
    assert max(error.operator, error.eigenvalues, error.span) < 1e-12


def test_nystrom_error_falls_as_one_over_the_root_of_the_examples() -> None:
    scales = torch.tensor([4.0, 3.0, 2.0, 0.5, 0.4, 0.3], dtype=torch.float64)
    features = torch.randn(20_000, 6, dtype=torch.float64) * scales
    every = forward_moments(features)
    exact, errors = eigenfunctions(every), {}
    for rows in (100, 1600):
        draws = [forward_moments(features[start : start + rows]) for start in range(0, 8 * rows, rows)]
        found = [nystrom_error(some, every, eigenfunctions(some), exact, modes=3) for some in draws]
        errors[rows] = [sum(getattr(e, name) for e in found) / 8 for name in ("operator", "eigenvalues", "span")]
        assert all(e.eigenvalues <= e.operator for e in found)  # the bound of the theory
    for few, many in zip(*errors.values()):
        assert 2.5 < few / many < 40  # a factor 4 for norms, 16 for the squared sine
    with pytest.raises(ValueError, match="at most the 6 resolved"):
        nystrom_error(every, every, exact, exact, modes=7)


def test_relative_eigenvalues_start_at_one_and_fall() -> None:
    relative = relative_eigenvalues(eigenfunctions(forward_moments(lazy_network()[0])).eigenvalues)
    assert relative[0] == 1 and bool((relative.diff() <= 0).all())


@pytest.mark.parametrize("normalisation", ["subspace", "variance"])
def test_collapsed_features_express_and_use_exactly_the_classes(normalisation: str) -> None:
    features, targets, _ = collapsed(classes=10)
    moments = forward_moments(features, targets, targets)
    for share in (quality, utilisation):
        shares = share(moments, normalisation=normalisation)
        torch.testing.assert_close(shares, torch.full((10,), 0.1, dtype=torch.float64))
    assert float(effective_dimension(quality(moments))) == pytest.approx(10)


def test_both_normalisations_agree_on_balanced_classes_and_differ_on_unequal_ones() -> None:
    features = torch.randn(200, 8, dtype=torch.float64)
    even, uneven = torch.arange(200) % 4, (torch.arange(200) > 150).long()
    for labels, agree in ((even, True), (uneven, False)):
        moments = forward_moments(features, targets=one_hot(labels, int(labels.max()) + 1))
        both = [quality(moments, normalisation=rule) for rule in ("subspace", "variance")]
        assert torch.allclose(*both, rtol=0, atol=1e-10) == agree


def test_a_head_without_bias_uses_nothing_outside_its_features() -> None:
    features, outputs, targets, _ = lazy_network()
    moments = forward_moments(features, outputs, targets)
    for rule in ("subspace", "variance"):
        total = cumulative(utilisation(moments, normalisation=rule))
        assert float(total[-1]) == pytest.approx(1, abs=1e-9)
        assert bool((total.diff() >= 0).all())
    biased = forward_moments(features - features.mean(0), outputs - outputs.mean(0) + 1.0)
    assert float(utilisation(biased, normalisation="variance").sum()) < 1 - 1e-3
    folded = torch.cat([features - features.mean(0), torch.ones(len(features), 1, dtype=torch.float64)], dim=1)
    assert float(utilisation(forward_moments(folded, outputs - outputs.mean(0) + 1.0)).sum()) == pytest.approx(1)


def test_total_quality_is_the_best_linear_readout() -> None:
    features, _, targets, _ = lazy_network()
    fit = features @ torch.linalg.lstsq(features, targets).solution
    explained = 1 - float((targets - fit).square().sum() / targets.square().sum())
    total = float(quality(forward_moments(features, targets=targets), normalisation="variance").sum())
    assert total == pytest.approx(explained, abs=1e-10)


def test_unrelated_features_look_good_in_sample_and_useless_held_out() -> None:
    rows, units, repeats = 600, 120, 6
    in_sample, held_out, adjusted = [], [], []
    for _ in range(repeats):
        features = torch.randn(2 * rows, units, dtype=torch.float64)
        targets = torch.randn(2 * rows, 3, dtype=torch.float64)
        fitted = forward_moments(features[:rows], targets=targets[:rows])
        other = forward_moments(features[rows:], targets=targets[rows:])
        cumulated = cumulative(quality(fitted))
        in_sample.append(float(cumulated[-1]))
        adjusted.append(float(adjusted_quality(cumulated, rows)[-1]))
        held_out.append(float(held_out_quality(fitted, other)[-1]))
    assert sum(in_sample) / repeats == pytest.approx(chance_quality(rows, units), abs=0.03)  # p/n = 0.2, for nothing
    assert abs(sum(adjusted) / repeats) < 0.03
    assert max(held_out) < 0


def test_held_out_quality_of_features_that_are_the_target_is_one() -> None:
    features, targets, _ = collapsed(classes=5, copies=40)
    order = torch.randperm(len(features))
    halves = [forward_moments(features[part], targets=targets[part]) for part in (order[:100], order[100:])]
    for rule in ("subspace", "variance"):
        assert float(held_out_quality(*halves, normalisation=rule)[-1]) == pytest.approx(1, abs=1e-9)


def test_effective_dimension_counts_equal_weights_and_ignores_scale() -> None:
    weights = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    assert float(effective_dimension(weights)) == pytest.approx(3)
    assert float(effective_dimension(torch.tensor([5.0]))) == pytest.approx(1)
    unequal = torch.rand(9)
    assert 1 < float(effective_dimension(unequal)) < 9
    assert float(effective_dimension(100 * unequal)) == pytest.approx(float(effective_dimension(unequal)), rel=1e-6)


def test_quality_that_has_used_up_its_examples_is_not_adjusted_to_any_number() -> None:
    few = forward_moments(torch.randn(4, 6).double(), targets=torch.randn(4, 1).double())
    cumulated = cumulative(quality(few))
    adjusted = adjusted_quality(cumulated, 4)
    assert len(cumulated) == 4 and adjusted[:2].isfinite().all() and adjusted[2:].isnan().all()
