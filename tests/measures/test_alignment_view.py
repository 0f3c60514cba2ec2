from __future__ import annotations

import torch

from tangentlens.measures.alignment_turns import in_random_basis
from tangentlens.measures.alignment_view import alignment_view, kernel_drift, top_overlap


def test_a_kernel_made_of_the_weight_overlaps_mode_by_mode() -> None:
    weight = torch.randn(5, 8, dtype=torch.float64)
    view = alignment_view(weight, weight @ weight.T)
    assert torch.allclose(view.overlaps, torch.eye(5, dtype=torch.float64), atol=1e-10)
    assert torch.allclose(view.singular_values**2, view.eigenvalues)
    assert torch.allclose(view.sensitivity, view.eigenvalues / view.eigenvalues.mean())
    assert abs(top_overlap(view, 2) - 1) < 1e-10


def test_overlaps_of_a_square_layer_are_doubly_stochastic_and_of_a_tall_one_by_rows() -> None:
    kernel = torch.diag(torch.arange(1.0, 7.0))
    square = alignment_view(torch.randn(6, 6), kernel).overlaps
    tall = alignment_view(torch.randn(6, 3), kernel).overlaps
    assert torch.allclose(square.sum(0), torch.ones(6).double()) and torch.allclose(
        square.sum(1), torch.ones(6).double()
    )
    assert tall.shape == (3, 6) and torch.allclose(tall.sum(1), torch.ones(3).double())


def test_unrelated_directions_overlap_at_chance() -> None:
    kernel = torch.diag(torch.arange(1.0, 61.0))
    views = [alignment_view(torch.randn(60, 80), in_random_basis(kernel, seed=seed)) for seed in range(10)]
    assert abs(torch.stack([top_overlap(view, 6) for view in views]).mean() - 6 / 60) < 0.03
    assert abs(torch.stack([view.sensitivity[:6].mean() for view in views]).mean() - 1) < 0.1


def test_drift_separates_the_direction_of_a_kernel_from_its_scale() -> None:
    gradients = torch.randn(50, 12, dtype=torch.float64) * torch.linspace(3, 0.1, 12)
    initial = gradients.T @ gradients
    grown = kernel_drift(7 * initial, initial)
    turned = kernel_drift(in_random_basis(initial), initial)
    assert abs(grown["cosine"] - 1) < 1e-12 and abs(grown["scale"] - 7) < 1e-12 and abs(grown["top_overlap"] - 1) < 1e-9
    assert turned["cosine"] < 0.9 and abs(turned["scale"] - 1) < 1e-9 and turned["top_overlap"] < 0.8
