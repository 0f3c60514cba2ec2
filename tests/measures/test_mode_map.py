"""Maps of modes by features."""

from __future__ import annotations

import pytest
import torch

from tangentlens.measures.families import fourier_features
from tangentlens.measures.mode_map import (
    best_assignment,
    column_normalised,
    distinct_favourites,
    frequency_map,
    mode_map,
)


def test_a_map_holds_cosines_whatever_the_lengths_and_signs():
    features = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    modes = torch.tensor([[-3.0, 1.0], [0.0, 1.0]])
    expected = torch.tensor([[1.0, 0.5**0.5], [0.0, 0.5**0.5]], dtype=torch.float64)
    torch.testing.assert_close(mode_map(modes, features), expected)


def test_normalising_columns_makes_a_weak_map_look_sharp():
    weak = torch.tensor([[0.10, 0.001], [0.001, 0.10]], dtype=torch.float64)
    sharp = column_normalised(weak)
    assert float(weak.max()) < 0.2 and float(sharp.diagonal().min()) > 0.99
    torch.testing.assert_close(sharp.norm(dim=0), torch.ones(2, dtype=torch.float64))


def test_a_zero_column_stays_zero_when_normalised():
    assert float(column_normalised(torch.zeros(3, 2)).abs().max()) == 0.0


def test_the_frequency_map_does_not_depend_on_phase():
    numbers = torch.arange(11)
    waves = fourier_features(numbers, 11)
    for phase in (0.0, 0.4, 2.0):
        mode = torch.cos(2 * torch.pi * 3 * numbers.double() / 11 + phase)[:, None]
        expected = torch.zeros(5, 1, dtype=torch.float64)
        expected[2] = 1.0
        torch.testing.assert_close(frequency_map(mode, waves), expected)


def test_an_odd_number_of_waves_is_refused():
    with pytest.raises(ValueError, match="pairs"):
        frequency_map(torch.ones(4, 1), torch.ones(4, 3))


def test_the_best_assignment_beats_the_greedy_one():
    cosines = torch.tensor([[0.9, 0.8], [0.85, 0.1]])
    found = best_assignment(cosines)
    assert found.features.tolist() == [1, 0] and found.modes.tolist() == [0, 1]
    assert float(found.cosines.sum()) == pytest.approx(1.65)


def test_an_assignment_of_shuffled_features_finds_the_shuffle():
    order = torch.randperm(8)
    features = torch.linalg.qr(torch.randn(20, 8)).Q
    found = best_assignment(mode_map(features[:, order], features))
    assert torch.equal(found.features, order)


def test_favourites_are_counted_once():
    assert distinct_favourites(torch.tensor([[0.9, 0.8, 0.1], [0.1, 0.2, 0.7]])) == 2
