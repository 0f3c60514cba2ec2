"""The linearised network, where it is exact and where it is measured."""

from __future__ import annotations

import pytest
import torch

from tangentlens.measures.linearised import linearisation_fidelity, linearised_prediction, prediction_from_modes


@pytest.fixture
def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(30, 4, dtype=torch.float64), torch.randn(9, 4, dtype=torch.float64)


def test_for_a_linear_model_the_linearised_prediction_is_least_squares(inputs):
    train, fresh = inputs
    weights, start = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    targets = train @ weights
    found = linearised_prediction(train @ train.T, fresh @ train.T, targets - train @ start, fresh @ start, ridge=1e-12)
    torch.testing.assert_close(found, fresh @ weights, rtol=1e-5, atol=1e-6)


def test_without_a_start_it_is_ridge_regression_around_zero(inputs):
    train, fresh = inputs
    targets = torch.randn(30, dtype=torch.float64)
    ridge = 0.3
    weights = torch.linalg.solve(train.T @ train + ridge * torch.eye(4, dtype=torch.float64), train.T @ targets)
    found = linearised_prediction(train @ train.T, fresh @ train.T, targets, ridge=ridge)
    torch.testing.assert_close(found, fresh @ weights)


def test_the_prediction_from_modes_is_the_prediction_from_the_kernel(inputs):
    train, fresh = inputs
    residual, start = torch.randn(30, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    vectors, sizes, _ = torch.linalg.svd(train, full_matrices=False)
    found = prediction_from_modes(fresh @ train.T @ vectors, sizes**2, vectors, residual, start, ridge=0.05)
    expected = linearised_prediction(train @ train.T, fresh @ train.T, residual, start, ridge=0.05)
    torch.testing.assert_close(found, expected)


def test_fidelity_is_one_for_the_network_itself_and_zero_for_its_mean():
    network, targets = torch.randn(20, 3), torch.randn(20, 3)
    same = linearisation_fidelity(network, network, targets)
    assert (same.r_squared, same.loss_ratio) == (pytest.approx(1.0), pytest.approx(1.0))
    flat = linearisation_fidelity(torch.full_like(network, float(network.mean())), network, targets)
    assert flat.r_squared == pytest.approx(0.0, abs=1e-6)
