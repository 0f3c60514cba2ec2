"""Feature dictionaries and the scan that says which of them a block carries."""

from __future__ import annotations

import pytest
import torch

from tangentlens.measures.families import (
    all_frequencies,
    carried_families,
    fourier_features,
    frequency_shares,
    indicators,
    key_frequencies,
    modular_families,
    on_every_output,
    superposition_features,
)
from tangentlens.measures.overlaps import orthonormal_span, subspace_overlap

P = 7
NUMBERS = torch.arange(P)
A, B = torch.cartesian_prod(NUMBERS, NUMBERS).unbind(1)


def centred(features: torch.Tensor) -> torch.Tensor:
    return orthonormal_span(features - features.mean(0))


def test_the_waves_of_z_p_are_orthogonal_and_complete():
    waves = fourier_features(NUMBERS, P)
    assert all_frequencies(P) == [1, 2, 3] and waves.shape == (P, P - 1)
    torch.testing.assert_close(waves.T @ waves, P / 2 * torch.eye(P - 1, dtype=torch.float64))


def test_at_half_an_even_period_only_the_cosine_is_a_feature():
    waves = fourier_features(torch.arange(6), 6)
    assert waves.shape == (6, 6) and orthonormal_span(waves).shape[1] == 5
    assert float(waves[:, 5].abs().max()) == 0.0


def test_chosen_frequencies_come_in_the_order_asked_for():
    torch.testing.assert_close(fourier_features(A, P, [3, 1])[:, 2:], fourier_features(A, P, [1]))


def test_the_four_families_of_two_numbers_are_orthogonal_to_each_other():
    families = modular_families(A, B, P)
    spans = [centred(families[name]) for name in ("a", "b", "a+b", "a-b")]
    whole = torch.cat(spans, 1)
    torch.testing.assert_close(whole.T @ whole, torch.eye(4 * (P - 1), dtype=torch.float64))


def test_for_an_odd_modulus_doubling_permutes_the_frequencies():
    families = modular_families(A, B, P)
    assert subspace_overlap(families["2a"], families["a"]).percent == pytest.approx(100.0)
    one = modular_families(A, B, P, [1])
    assert subspace_overlap(one["2a"], one["a"]).percent == pytest.approx(0.0, abs=1e-9)
    assert subspace_overlap(one["2a"], fourier_features(A, P, [2])).percent == pytest.approx(100.0)


def test_indicators_have_one_column_per_label():
    found = indicators(torch.tensor([5, 2, 5, 9]))
    assert found.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_a_superposition_feature_is_its_data_column_in_its_own_output():
    data = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert superposition_features(data).tolist() == [[1, 0], [0, 2], [3, 0], [0, 4]]


def test_lifting_to_outputs_follows_the_rows_of_a_flattened_kernel():
    lifted = on_every_output(torch.tensor([[1.0], [2.0]]), 2)
    assert lifted.tolist() == [[1, 0], [0, 1], [2, 0], [0, 2]]


def test_the_scan_names_the_families_of_a_block_without_being_told():
    families = modular_families(A, B, P)
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=generator, dtype=torch.float64)).Q
    block = torch.cat([centred(families["a+b"]), centred(families["a-b"])], 1) @ turn
    found = carried_families(block, families, permutations=19)
    significant = [each.family for each in found if each.significant]
    assert set(significant) == {"a+b", "a-b"}
    assert found[0].overlap.percent == pytest.approx(100.0)
    assert found[0].explained_percent == pytest.approx(50.0)


def test_the_scan_finds_nothing_in_a_random_block():
    generator = torch.Generator().manual_seed(1)
    block = torch.randn(P * P, 6, generator=generator, dtype=torch.float64)
    found = carried_families(block, modular_families(A, B, P), permutations=99)
    assert not [each.family for each in found if each.significant]


def test_a_nearly_constant_block_carries_nothing():
    """Its permutations are nearly itself, so that any share of rounding would stand above them."""
    families = modular_families(A, B, P)
    block = 1 + 1e-3 * families["a"][:, :1]
    assert not [each.family for each in carried_families(block, families, permutations=19) if each.significant]


def test_any_matrix_of_the_users_own_is_a_family():
    mine = torch.randn(P * P, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = carried_families(mine - mine.mean(0), {"mine": mine}, permutations=9)
    assert found[0].family == "mine" and found[0].overlap.percent == pytest.approx(100.0)


def test_shares_over_frequencies_show_which_waves_a_block_holds():
    block = orthonormal_span(fourier_features(A + B, P, [2]))
    torch.testing.assert_close(frequency_shares(block, A + B, P), torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))


def test_key_frequencies_of_an_embedding_are_those_put_into_it():
    generator = torch.Generator().manual_seed(3)
    tokens = torch.arange(29)
    noise = torch.randn(29, 16, generator=generator, dtype=torch.float64)
    signal = fourier_features(tokens, 29, [12, 5]) @ torch.randn(4, 16, generator=generator, dtype=torch.float64)
    assert set(key_frequencies(2 * signal + noise)) == {5, 12}
    assert key_frequencies(noise) == []


def test_frequency_shares_leave_out_the_mean_where_rows_are_not_balanced():
    values = torch.arange(2 * P - 3)  # some numbers twice
    constant = torch.ones(len(values), 1, dtype=torch.float64)
    torch.testing.assert_close(frequency_shares(constant, values, P), torch.zeros(3, dtype=torch.float64))


def test_significance_without_shuffles_is_refused():
    families = modular_families(A, B, P)
    with pytest.raises(ValueError, match="permutations=0"):
        carried_families(families["a"], families, permutations=0)
    with pytest.raises(ValueError, match="permutations=0"):
        key_frequencies(torch.eye(P), permutations=0)
