from __future__ import annotations

import pytest
import torch

from tangentlens.measures.alignment import ansatz_correlation, centred_share, hybrid_correlation, relative_change
from tests.reference.beaglehole2024 import ansatz_on_the_input_side, correlation_by_entries

WIDER, TALLER = (5, 12), (12, 5)


def layer(shape: tuple[int, int], rank: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    units, width = shape
    weight = torch.randn(units, width, dtype=torch.float64)
    gradients = torch.randn(rank or 3 * units, units, dtype=torch.float64) * torch.linspace(0.1, 2, units).double()
    return weight, gradients.T @ gradients


@pytest.mark.parametrize("shape", [WIDER, TALLER])
@pytest.mark.parametrize("centering", ["none", "entries"])
@pytest.mark.parametrize("power", [1.0, 0.5, 1 / 3])
def test_the_unit_side_gives_the_input_side_number(shape: tuple[int, int], centering: str, power: float) -> None:
    weight, kernel = layer(shape)
    weight = weight + 0.3  # a mean, so that the two correlations differ
    ours = ansatz_correlation(weight, kernel, centering=centering, agop_power=power)
    assert abs(ours - ansatz_on_the_input_side(weight, kernel, centering, power)) < 1e-12


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_low_ranks_of_weight_and_kernel_give_the_input_side_number(power: float) -> None:
    weight, kernel = layer(WIDER, rank=2)
    weight[3] = weight[1]
    ours = ansatz_correlation(weight, kernel, centering="entries", agop_power=power)
    assert abs(ours - ansatz_on_the_input_side(weight, kernel, "entries", power)) < 1e-7


def test_an_indefinite_kernel_change_counts_its_negative_part_as_zero_in_a_root() -> None:
    weight, kernel = layer(WIDER)
    change = kernel - layer(WIDER)[1]
    ours = ansatz_correlation(weight, change, agop_power=0.5)
    assert torch.linalg.eigvalsh(change)[0] < 0
    assert abs(ours - ansatz_on_the_input_side(weight, change, power=0.5)) < 1e-12
    assert abs(ansatz_correlation(weight, change) - ansatz_on_the_input_side(weight, change)) < 1e-12


def test_the_scale_of_the_kernel_plays_no_part() -> None:
    weight, kernel = layer(WIDER)
    assert torch.isclose(ansatz_correlation(weight, kernel), ansatz_correlation(weight, 1e-6 * kernel), atol=1e-14)


def test_a_scalar_readout_correlates_perfectly_whatever_it_holds() -> None:
    weight = torch.randn(1, 9)
    assert abs(ansatz_correlation(weight, torch.tensor([[0.7]])) - 1) < 1e-12


def test_a_weight_that_has_not_moved_has_no_centred_correlation() -> None:
    _, kernel = layer(WIDER)
    assert ansatz_correlation(torch.zeros(5, 12), kernel).isnan()


@pytest.mark.parametrize("shape", [WIDER, TALLER])
def test_the_share_is_the_ratio_of_the_two_traces(shape: tuple[int, int]) -> None:
    weight, kernel = layer(shape)
    initial = weight - 0.3 * torch.randn_like(weight)
    change = weight - initial
    centred = ((change.T @ change) * (change.T @ kernel @ change)).sum()
    whole = ((weight.T @ weight) * (weight.T @ kernel @ weight)).sum()
    assert abs(centred_share(weight, initial, kernel) - centred / whole) < 1e-12
    assert abs(relative_change(weight, initial) - change.norm() / weight.norm()) < 1e-14


def test_the_share_exceeds_one_when_the_change_cancels_the_initial_weight() -> None:
    initial, kernel = layer(WIDER)
    assert centred_share(0.5 * initial - 0.1 * initial, initial, kernel) > 1


@pytest.mark.parametrize("shape", [WIDER, TALLER])
def test_the_hybrid_takes_the_change_for_the_nfm_and_the_whole_weight_for_the_agop(shape: tuple[int, int]) -> None:
    weight, kernel = layer(shape)
    initial = torch.randn_like(weight)
    change = weight - initial
    expected = correlation_by_entries(change.T @ change, weight.T @ kernel @ weight, "none")
    assert abs(hybrid_correlation(weight, initial, kernel) - expected) < 1e-12


def test_a_float32_layer_is_reduced_in_float64() -> None:
    weight, kernel = layer((40, 60))
    exact = ansatz_correlation(weight.float(), kernel.float())
    assert exact.dtype == torch.float64
    assert abs(exact - ansatz_on_the_input_side(weight.float().double(), kernel.float().double())) < 1e-12


def test_a_kernel_of_other_size_and_an_unknown_centering_are_refused() -> None:
    weight, kernel = layer(WIDER)
    with pytest.raises((ValueError, TypeError), match="unit|shape"):
        ansatz_correlation(weight, kernel[:3, :3])
    with pytest.raises((ValueError, TypeError), match="entries|centering"):
        ansatz_correlation(weight, kernel, centering="rows")
