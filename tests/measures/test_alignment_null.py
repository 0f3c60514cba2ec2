from __future__ import annotations

import pytest
import torch

from tangentlens.measures.alignment import ansatz_correlation
from tangentlens.measures.alignment_null import adjusted, ansatz, band, random_basis_null
from tangentlens.measures.alignment_turns import Turns, in_random_basis, sampled_null


def layer(units: int = 40, width: int = 30, decay: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight with a concentrated spectrum and a kernel with another."""
    scales = (1 + torch.arange(width).double()) ** -decay
    weight = torch.randn(units, width, dtype=torch.float64) * scales
    gradients = torch.randn(100, units, dtype=torch.float64) * (1 + torch.arange(units).double()) ** -0.5
    return weight, gradients.T @ gradients


def by_turning_the_kernel(weight: torch.Tensor, kernel: torch.Tensor, centering: str, turns: int) -> torch.Tensor:
    """The same correlation with K really replaced, turn by turn."""
    turned = (in_random_basis(kernel, seed=seed) for seed in range(turns))
    return torch.stack([ansatz_correlation(weight, kernel, centering=centering) for kernel in turned])


@pytest.mark.parametrize("shape", [(40, 30), (40, 120), (120, 40)])
@pytest.mark.parametrize("centering", ["none", "entries"])
def test_the_analytic_null_is_the_mean_over_fifty_random_rotations(shape: tuple[int, int], centering: str) -> None:
    weight, kernel = layer(*shape, decay=0.2)
    turned = by_turning_the_kernel(weight + 0.05, kernel, centering, 50)
    error = turned.std() / 50**0.5
    assert abs(random_basis_null(weight + 0.05, kernel, centering=centering) - turned.mean()) < 3 * error + 0.005


def test_where_few_directions_dominate_the_analytic_null_is_too_low_and_the_null_is_the_sampled_mean() -> None:
    weight, kernel = layer(40, 120, decay=2.0)
    correlation = ansatz(weight, kernel, draws=200)
    turned = by_turning_the_kernel(weight, kernel, "none", 200)
    assert correlation.analytic_null < turned.mean() - 0.02
    assert abs(correlation.null - turned.mean()) < 5 * turned.std() / 200**0.5


@pytest.mark.parametrize("shape", [(20, 40), (40, 20)])
def test_the_analytic_null_is_made_of_the_two_participation_ratios(shape: tuple[int, int]) -> None:
    weight, kernel = layer(*shape, decay=0.3)
    units, gram = len(weight), weight @ weight.T
    s = units * gram.square().sum() / gram.trace() ** 2
    q = units * kernel.square().sum() / kernel.trace() ** 2
    assert abs(random_basis_null(weight, kernel) - (s / (s + q - 1)).sqrt()) < 1e-12


def test_the_sampled_band_of_a_root_matches_turned_kernels() -> None:
    weight, kernel = layer(12, 20)
    turned = torch.stack(
        [ansatz_correlation(weight, in_random_basis(kernel, seed=seed), agop_power=0.5) for seed in range(100)]
    )
    sampled = sampled_null(weight, Turns(kernel, draws=100), agop_power=0.5)
    assert abs(sampled.mean() - turned.mean()) < 6 * turned.std() / 100**0.5
    correlation = ansatz(weight, kernel, agop_power=0.5, draws=100)
    assert correlation.null == sampled.mean() and correlation.analytic_null.isnan()


def test_unaligned_layers_read_zero_and_an_aligned_one_well_above_although_all_cosines_are_high() -> None:
    weight, _ = layer(60, 60, decay=0.5)
    kernel = weight @ weight.T + 2 * torch.eye(60)
    aligned = ansatz(weight, kernel)
    unaligned = [ansatz(weight, in_random_basis(kernel, seed=100 + seed)) for seed in range(20)]
    inside = sum(bool(one.low <= one.value <= one.high) for one in unaligned)
    assert inside >= 15  # 18 expected
    assert abs(torch.stack([one.adjusted for one in unaligned]).mean()) < 0.15
    assert aligned.value > aligned.high and aligned.adjusted > 0.4
    assert min(one.value for one in unaligned) > 0.7  # high, and yet chance


def test_a_flat_kernel_is_at_chance_and_perfectly_correlated() -> None:
    weight, _ = layer()
    correlation = ansatz(weight, torch.eye(40), draws=3)
    assert abs(correlation.value - 1) < 1e-12 and abs(correlation.null - 1) < 1e-12
    assert correlation.adjusted.isnan()  # there is no room between chance and agreement


def test_one_unit_has_a_null_of_one() -> None:
    assert random_basis_null(torch.randn(1, 7), torch.ones(1, 1)) == 1


def test_the_adjusted_value_is_zero_at_chance_and_one_at_full_agreement() -> None:
    null = torch.tensor(0.6)
    assert (
        adjusted(null, null) == 0 and adjusted(torch.tensor(1.0), null) == 1 and adjusted(torch.tensor(0.3), null) < 0
    )


def test_without_draws_the_band_is_nan_and_the_value_stands() -> None:
    weight, kernel = layer()
    correlation = ansatz(weight, kernel, draws=0)
    assert (
        correlation.null == random_basis_null(weight, kernel)
        and correlation.low.isnan()
        and correlation.high.isnan()
        and correlation.value == ansatz_correlation(weight, kernel)
    )
    assert "chance" in str(correlation)


def test_without_a_band_no_value_is_above_chance_and_the_words_say_that_the_level_is_analytic() -> None:
    weight, kernel = layer()
    bare, few = ansatz(weight, kernel, draws=0), ansatz(weight, kernel, draws=18)
    assert bare.value > bare.null and not bare.above_chance and "analytic" in str(bare)
    assert few.null != bare.null and few.high.isnan() and not few.above_chance  # a mean, but no band
    assert ansatz(weight, weight @ weight.T).above_chance


def test_one_more_draw_lies_beyond_either_end_of_the_band_in_one_case_of_twenty_at_most() -> None:
    generator = torch.Generator().manual_seed(0)
    for draws, expected in ((19, 1 / 20), (39, 2 / 40), (50, 2 / 51), (99, 5 / 100)):
        values = torch.rand(20_000, draws + 1, generator=generator)
        ends = torch.stack([torch.stack(band(row[1:])) for row in values[:4000]])
        above = (values[:4000, 0] > ends[:, 1]).double().mean().item()
        assert abs(above - expected) < 3 * (expected / 4000) ** 0.5 and expected <= 0.05
    assert band(torch.rand(18))[1].isnan()
