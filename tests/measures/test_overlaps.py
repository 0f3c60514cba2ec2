"""Overlaps of spans: what they are by hand, what chance gives, and that no basis matters."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tangentlens.measures.overlaps import orthonormal_span, subspace_overlap


def columns(rows: int, count: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_block_that_contains_the_features_holds_all_of_them():
    features = columns(30, 3, 0)
    centred = features - features.mean(0)
    found = subspace_overlap(torch.cat([centred, columns(30, 4, 1)], 1), features)
    assert found.percent == pytest.approx(100.0)
    assert (found.feature_dimension, found.block_dimension) == (3, 7)
    torch.testing.assert_close(found.angles, torch.zeros(3, dtype=torch.float64), atol=1e-5, rtol=0)


def test_orthogonal_spans_share_nothing():
    eye = torch.eye(6, dtype=torch.float64)
    assert subspace_overlap(eye[:, :2], eye[:, 3:5], centre=False).percent == pytest.approx(0.0)


def test_two_lines_at_sixty_degrees_share_a_quarter():
    line, other = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.5], [3**0.5 / 2]])
    found = subspace_overlap(line, other, centre=False)
    assert found.percent == pytest.approx(25.0)
    assert found.angles.item() == pytest.approx(60.0)


@settings(max_examples=25, deadline=None)
@given(modes=st.integers(1, 5), features=st.integers(1, 5), seed=st.integers(0, 1000))
def test_the_overlap_does_not_depend_on_the_basis_of_either_span(modes, features, seed):
    block, space = columns(12, modes, seed), columns(12, features, seed + 1)
    turned = subspace_overlap(block @ columns(modes, modes, seed + 2), space @ columns(features, features, seed + 3))
    plain = subspace_overlap(block, space)
    assert turned.percent == pytest.approx(plain.percent, abs=1e-6)
    assert 0 <= plain.percent <= 100 + 1e-9
    assert plain.percent == pytest.approx(100 * float(plain.cosines.square().sum()) / features)


def test_random_blocks_hold_the_chance_share_on_average():
    features = columns(40, 4, 0)
    found = [subspace_overlap(columns(40, 6, seed), features) for seed in range(1, 200)]
    assert found[0].chance_percent == pytest.approx(100 * 6 / 40)
    assert sum(each.percent for each in found) / len(found) == pytest.approx(15.0, abs=1.0)


def test_the_permutation_null_sits_at_chance_and_a_real_overlap_far_above_it():
    features = columns(60, 3, 0)
    block = torch.cat([features - features.mean(0), columns(60, 3, 1)], 1)
    real = subspace_overlap(block, features, permutations=99)
    assert real.null_percent == pytest.approx(real.chance_percent, abs=2.0)
    assert real.null_highest_percent < 60 < real.percent and real.null_probability == pytest.approx(0.01)
    random = subspace_overlap(columns(60, 6, 2), features, permutations=99)
    assert random.null_probability > 0.05


def test_the_null_is_the_same_for_the_same_seed():
    block, features = columns(20, 3, 0), columns(20, 2, 1)
    first, second = (subspace_overlap(block, features, permutations=5, seed=4) for _ in range(2))
    assert first.null_percent == second.null_percent


def test_dependent_feature_columns_count_once():
    features = columns(20, 2, 0)
    doubled = torch.cat([features, features @ columns(2, 3, 1)], 1)
    block = columns(20, 5, 2)
    assert subspace_overlap(block, doubled).feature_dimension == 2
    assert subspace_overlap(block, doubled).percent == pytest.approx(subspace_overlap(block, features).percent)


def test_features_are_centred_unless_told_otherwise():
    constant = torch.ones(8, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="span nothing"):
        subspace_overlap(constant, constant)
    assert subspace_overlap(constant, constant, centre=False).percent == pytest.approx(100.0)


def test_an_orthonormal_span_leaves_out_what_is_rounding():
    base = columns(10, 2, 0)
    span = orthonormal_span(torch.cat([base, base.sum(1, keepdim=True) + 1e-17], 1))
    torch.testing.assert_close(span.T @ span, torch.eye(2, dtype=torch.float64))


def test_what_has_no_span_is_refused_in_words():
    block, features = torch.eye(8, dtype=torch.float64)[:, :2], torch.arange(8.0)[:, None]
    with pytest.raises(ValueError, match="modes span nothing"):
        subspace_overlap(torch.zeros(8, 2), features)
    with pytest.raises(ValueError, match="NaN or infinity"):
        subspace_overlap(block, torch.full((8, 1), torch.nan))
