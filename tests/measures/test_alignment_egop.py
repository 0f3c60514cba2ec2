from __future__ import annotations

import inspect

import pytest
import torch

from tangentlens.measures.alignment_turns import in_random_basis
from tangentlens.measures.egop import egop, feature_quality
from tangentlens.measures.feature_machine import feature_machine, laplace_kernel, machine_gradients
from tests.reference.beaglehole2024 import chain, gradient_outer_product


def test_egop_sums_every_outputs_gradients_over_the_inputs() -> None:
    inputs = torch.randn(7, 4, dtype=torch.float64)

    def target(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([(x**2).sum(-1), x[..., 0] * x[..., 1]], dim=-1)

    assert torch.allclose(egop(target, inputs), gradient_outer_product(target, inputs) / 7)


def test_egop_of_the_cyclic_chain_is_two_on_its_diagonal_and_one_two_places_off() -> None:
    ours = egop(lambda x: chain(x, 5), torch.randn(200_000, 7))
    expected = torch.zeros(7, 7)
    for place in range(5):
        expected[place, place] = 2
        expected[place, (place + 2) % 5] = expected[(place + 2) % 5, place] = 1
    assert (ours - expected).abs().max() < 0.05


def test_feature_quality_has_the_mean_and_spread_of_turned_metrics_as_its_null() -> None:
    metric = torch.diag((1 + torch.arange(20).double()) ** -1)
    target = torch.diag((torch.arange(20) < 5).double())
    quality = feature_quality(metric, target)
    turned = torch.stack([feature_quality(in_random_basis(metric, seed=seed), target).value for seed in range(400)])
    assert abs(quality.null - turned.mean()) < 4 * turned.std() / 20
    inside = ((turned > quality.low) & (turned < quality.high)).double().mean()
    assert 0.85 < inside < 0.95
    assert quality.value > quality.high


def test_gradients_of_the_feature_machine_are_those_of_its_function() -> None:
    inputs, centres = torch.randn(6, 4, dtype=torch.float64), torch.randn(9, 4, dtype=torch.float64)
    coefficients = torch.randn(9, 2, dtype=torch.float64)
    root = torch.randn(4, 4, dtype=torch.float64)
    metric = root @ root.T

    def function(x: torch.Tensor) -> torch.Tensor:
        away = x[:, None] - centres
        distances = torch.einsum("noi,ij,noj->no", away, metric, away).sqrt()
        return torch.exp(-distances / 3) @ coefficients

    expected = torch.func.vmap(torch.func.jacrev(lambda x: function(x[None])[0]))(inputs)
    ours = machine_gradients(inputs, centres, coefficients, metric, 3.0)
    assert torch.allclose(ours, expected, atol=1e-12)
    assert torch.allclose(laplace_kernel(inputs, centres, metric, 3.0) @ coefficients, function(inputs))


def test_a_centres_own_kernel_has_no_part_in_its_gradient() -> None:
    inputs = torch.randn(5, 3, dtype=torch.float64)
    gradients = machine_gradients(inputs, inputs, torch.ones(5, 1).double(), torch.eye(3).double(), 1.0)
    assert gradients.isfinite().all()


def test_the_feature_machine_finds_the_directions_the_target_depends_on() -> None:
    inputs = torch.randn(400, 12, dtype=torch.float64)
    targets = (inputs[:, 0] * inputs[:, 1])[:, None]
    machine = feature_machine(inputs, targets, rounds=4, bandwidth=10.0)
    fresh = torch.randn(300, 12, dtype=torch.float64)
    wanted = (fresh[:, 0] * fresh[:, 1])[:, None]
    error = ((machine(fresh) - wanted) ** 2).mean() / wanted.var()
    plain = feature_machine(inputs, targets, rounds=0, bandwidth=10.0)
    plain_error = ((plain(fresh) - wanted) ** 2).mean() / wanted.var()
    quality = feature_quality(machine.metric, egop(lambda x: x[:, 0] * x[:, 1], fresh))
    assert error < 0.3 * plain_error
    assert quality.value > 0.9 and quality.value > quality.high
    assert machine.metrics.shape == (5, 12, 12) and torch.equal(machine.metrics[0], torch.eye(12).double())
    assert torch.isclose(machine.metric.trace(), torch.tensor(12.0).double())


def test_a_machine_with_its_scale_left_free_and_centred_gradients_off_still_fits_its_data() -> None:
    inputs, targets = torch.randn(60, 5), torch.randn(60, 2)
    machine = feature_machine(
        inputs, targets, rounds=2, bandwidth=2.0, fixed_trace=False, centred_gradients=False, agop_power=0.5, ridge=1e-8
    )
    assert torch.allclose(machine(inputs), targets.double(), atol=1e-2)
    assert "60 centres" in repr(machine)


def test_a_machine_refuses_targets_and_rounds_it_cannot_use() -> None:
    unchecked, inputs = inspect.unwrap(feature_machine), torch.randn(9, 3)  # the tests check shapes before it can
    with pytest.raises(ValueError, match=r"got \(9, 3\) and \(9,\); write one target as"):
        unchecked(inputs, torch.randn(9))
    with pytest.raises(ValueError, match="rounds are counted from 0"):
        feature_machine(inputs, torch.randn(9, 1), rounds=-1)
    with pytest.raises(ValueError, match="without a gradient in round 0"):
        feature_machine(inputs, torch.zeros(9, 1))


def test_a_constant_target_has_no_directions_and_one_that_sums_over_examples_is_refused() -> None:
    assert torch.equal(egop(lambda x: torch.ones(len(x)), torch.randn(4, 3)), torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"4 inputs to one row each, got values of shape \(\)"):
        egop(lambda x: x.sum(), torch.randn(4, 3))


def test_a_metric_of_another_side_than_the_egop_is_refused() -> None:
    unchecked = inspect.unwrap(feature_quality)  # the tests check shapes before the function can
    with pytest.raises(ValueError, match=r"same input side, got \(4, 4\) and \(5, 5\)"):
        unchecked(torch.eye(4), torch.eye(5))
