"""Cliffs: found where they are put, not where spectra are smooth, and told apart from those of the beginning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tangentlens.measures.cliffs import blocks, cliffs, largest_gaps, log_gaps
from tangentlens.measures.smooth_spectrum import chance_beyond, smooth_gaps


def plateaus(levels: list[tuple[int, float]], noise: float = 0.05, seed: int = 0) -> torch.Tensor:
    """Blocks of nearly equal eigenvalues: (how many, how large)."""
    generator = torch.Generator().manual_seed(seed)
    parts = [
        level * torch.exp(-noise * torch.rand(count, generator=generator, dtype=torch.float64))
        for count, level in levels
    ]
    return torch.cat([part.sort(descending=True).values for part in parts])


def gram_spectrum(rows: int, columns: int, power: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    factors *= torch.arange(1, columns + 1, dtype=torch.float64) ** (-power / 2)
    return torch.linalg.eigvalsh(factors @ factors.T).flip(0)


def test_the_cliffs_between_plateaus_are_found_where_they_are():
    found = cliffs(plateaus([(1, 30.0), (56, 1.0), (56, 0.4), (200, 0.2)]))
    assert found.positions.tolist() == [1, 57, 113]
    assert found.sizes.exp()[1].item() == pytest.approx(2.5, rel=0.1)
    assert bool((found.sizes > found.null_sizes).all()) and float(found.chances.max()) < 0.01


@settings(max_examples=15, deadline=None)
@given(first=st.integers(10, 60), second=st.integers(10, 60), drop=st.floats(2.0, 20.0), seed=st.integers(0, 100))
def test_a_cliff_is_found_whatever_its_place(first, second, drop, seed):
    found = cliffs(plateaus([(first, drop), (second, 1.0)], seed=seed))
    assert first in found.positions.tolist()
    assert found.largest(1) == [first]


def test_smooth_gram_spectra_have_cliffs_no_more_often_than_the_error_rate():
    alarms = 0
    for seed in range(40):
        values = gram_spectrum(120, 60 + 10 * seed, power=[0.0, 1.0, 2.0][seed % 3], seed=seed)
        alarms += len(cliffs(values, error_rate=0.05, floor=1e-6 * float(values[0]))) > 0
    assert alarms <= 4


def spectrum_of(gaps: torch.Tensor) -> torch.Tensor:
    return torch.exp(-torch.cat([torch.zeros(1, dtype=torch.float64), gaps.cumsum(0)]))


@pytest.mark.parametrize("law", ["the null's own", "equal means", "a power law"])
def test_independent_levels_have_cliffs_no_more_often_than_the_error_rate(law):
    """Exponential gaps, with the mean the null assumes and with others that are as smooth."""
    index = torch.arange(1, 100, dtype=torch.float64)
    means = {"the null's own": 1 / index + 1 / index.flip(0), "equal means": 0.1, "a power law": 1.5 / index}[law]
    alarms = 0
    for seed in range(100):
        gaps = torch.empty(99, dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(seed))
        alarms += len(cliffs(spectrum_of(gaps * means), error_rate=0.1, floor=0.0)) > 0
    assert alarms <= 15  # of a binomial with mean 10, beyond 15 in 4 of 100 cases


@pytest.mark.parametrize("power", [0.0, 2.0])
def test_a_hard_lower_edge_is_no_cliff(power):
    """The smallest levels of a square Gram matrix reach down to zero."""
    alarms = 0
    for seed in range(20):
        values = gram_spectrum(100, 100, power, seed)
        alarms += len(cliffs(values, error_rate=0.05, floor=1e-10 * float(values[0]))) > 0
    assert alarms <= 2


def test_a_plateau_of_nearly_equal_modes_has_no_cliffs_in_it():
    """Its gaps run over decades, from rounding in the middle to thousandths at its ends; none of them is a block."""
    ends = 1e-3 * 10.0 ** -torch.arange(18, dtype=torch.float64)
    plateau = torch.cat([ends, ends.flip(0)])
    bulk = 0.005 * torch.empty(30, dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(0))
    above = torch.tensor([0.07, 0.04, 0.005, 0.005, 0.009, 0.015, 0.016, 0.013, 0.003], dtype=torch.float64)
    cliff = torch.tensor([0.17, 3.2], dtype=torch.float64)
    values = spectrum_of(torch.cat([above, cliff[:1], plateau, cliff[1:], bulk]))
    assert cliffs(values).positions.tolist() == [10, 47]


def test_the_edge_below_a_cliff_is_no_second_cliff():
    """Gaps widen towards the edge of a bulk wherever that edge lies."""
    index = torch.arange(1, 100, dtype=torch.float64)
    bulk = 1 / index + 1 / index.flip(0)
    assert cliffs(
        spectrum_of(torch.cat([bulk, torch.tensor([6.0], dtype=torch.float64), bulk]))
    ).positions.tolist() == [100]


def test_exact_decays_have_no_cliff():
    index = torch.arange(1, 101, dtype=torch.float64)
    for values in (index**-1.5, torch.exp(-0.1 * index), torch.ones(50, dtype=torch.float64)):
        assert len(cliffs(values)) == 0


def test_a_cliff_of_the_initial_network_is_not_learned():
    initial = plateaus([(57, 4.0), (143, 1.0)], seed=1)
    trained = plateaus([(57, 4.0), (56, 1.0), (87, 0.5)], seed=2)
    found = cliffs(trained, initial)
    assert found.positions.tolist() == [57, 113]
    assert found.learned.tolist() == [False, True]
    assert found.initial_sizes.exp()[0].item() == pytest.approx(4.0, rel=0.1)
    assert found.initial_sizes[1].item() < 0.05


def test_a_gap_that_was_nearly_a_cliff_is_not_learned_by_growing_a_little():
    base = torch.exp(-0.01 * torch.arange(100, dtype=torch.float64))

    def with_gap(size: float) -> torch.Tensor:
        return torch.cat([base[:40], base[40:] * torch.exp(torch.tensor(-size, dtype=torch.float64))])

    threshold = float(cliffs(with_gap(1.0)).null_sizes[0])
    found = cliffs(with_gap(1.05 * threshold), with_gap(0.9 * threshold))
    assert found.positions.tolist() == [40] and found.learned.tolist() == [False]
    assert cliffs(with_gap(2.0 * threshold), with_gap(0.5 * threshold)).learned.tolist() == [True]


def test_an_initial_spectrum_that_is_too_short_counts_as_without_a_gap():
    trained = plateaus([(40, 4.0), (40, 1.0)])
    found = cliffs(trained, trained[:20])
    assert found.positions.tolist() == [40] and torch.isnan(found.initial_sizes).all() and bool(found.learned.all())


def test_gaps_end_where_eigenvalues_are_rounding():
    values = torch.tensor([4.0, 2.0, 1.0, 1e-17, 1e-30, -1e-18], dtype=torch.float64)
    values = values.sort(descending=True).values
    torch.testing.assert_close(log_gaps(values), torch.tensor([2.0, 2.0], dtype=torch.float64).log())


def test_gaps_do_not_depend_on_the_scale_of_the_kernel():
    values = plateaus([(20, 3.0), (30, 1.0)])
    assert cliffs(values * 1e-9).positions.tolist() == cliffs(values).positions.tolist()


def test_the_smooth_gaps_leave_out_the_gap_itself():
    gaps = torch.full((50,), 0.1, dtype=torch.float64)
    spiked = gaps.clone()
    spiked[24] = 5.0
    calm, beside = smooth_gaps(gaps), smooth_gaps(spiked)
    assert beside.near[24].item() == pytest.approx(calm.near[24].item())
    assert beside.anywhere[24].item() == pytest.approx(calm.anywhere[24].item(), rel=0.05)
    assert int(calm.others[0]) == 49 and int(calm.neighbours.min()) >= 16


def test_the_chance_beyond_a_median_is_that_of_exponential_variables():
    generator = torch.Generator().manual_seed(0)
    draws = torch.empty(20_000, 9, dtype=torch.float64).exponential_(generator=generator)
    for multiple in (1.0, 3.0, 8.0):
        seen = (draws[:, 0] > multiple * draws[:, 1:].median(1).values).double().mean().item()
        expected = chance_beyond(torch.tensor([multiple], dtype=torch.float64), torch.tensor([8])).item()
        assert seen == pytest.approx(expected, abs=4 * (expected / 20_000) ** 0.5)


def test_blocks_are_the_stretches_between_cliffs():
    assert blocks([3, 3, 10], 12) == [(0, 3), (3, 10), (10, 12)]
    assert blocks(torch.tensor([5]), 5) == [(0, 5)]
    assert blocks([], 4) == [(0, 4)]


def test_gaps_are_ranked_by_size_alone():
    assert largest_gaps(torch.tensor([8.0, 7.0, 1.0, 0.9, 0.1], dtype=torch.float64), 2) == [2, 4]


def test_an_unsorted_spectrum_is_refused():
    with pytest.raises(ValueError, match="sorted"):
        cliffs(torch.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="at least two"):
        cliffs(torch.tensor([1.0]))
    with pytest.raises(ValueError, match="finite"):
        cliffs(torch.tensor([3.0, float("nan"), 1.0]))
    with pytest.raises(ValueError, match="between 0 and 1"):
        cliffs(torch.tensor([3.0, 2.0, 1.0]), error_rate=5.0)
