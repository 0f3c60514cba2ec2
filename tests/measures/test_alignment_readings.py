from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch

from tangentlens.measures.alignment import ansatz_correlation, centred_share, hybrid_correlation, relative_change
from tangentlens.measures.alignment_null import random_basis_null
from tangentlens.measures.alignment_readings import ansatz_readings, head_rows, packed_rows, rows_of
from tangentlens.measures.alignment_view import alignment_view


def moved_layer() -> tuple[torch.Tensor, ...]:
    initial = torch.randn(6, 10, dtype=torch.float64)
    weight = initial + 0.5 * torch.randn_like(initial)
    kernels = [torch.randn(6, 20, dtype=torch.float64) for _ in range(2)]
    return weight, initial, kernels[0] @ kernels[0].T, kernels[1] @ kernels[1].T


def test_every_correlation_stands_beside_its_null_band_and_adjusted_value() -> None:
    weight, initial, kernel, first_kernel = moved_layer()
    readings = ansatz_readings(weight, initial, kernel, first_kernel, draws=10)
    names = {"uncentred", "centred", "centred_initial_kernel", "centred_kernel_change"}
    beside = {
        f"{name}{suffix}" for name in names for suffix in ("", "_null", "_low", "_high", "_analytic_null", "_adjusted")
    }
    assert set(readings) == beside | {"centred_share", "relative_change"}
    change = weight - initial
    assert readings["centred"] == ansatz_correlation(change, kernel)
    assert readings["centred_analytic_null"] == random_basis_null(change, kernel)
    assert readings["centred_initial_kernel"] == ansatz_correlation(change, first_kernel)
    assert readings["centred_kernel_change"] == ansatz_correlation(change, kernel - first_kernel)
    assert readings["centred_share"] == centred_share(weight, initial, kernel)


def test_at_initialisation_only_the_centred_values_are_nan() -> None:
    weight, _, kernel, _ = moved_layer()
    readings = ansatz_readings(weight, weight.clone(), kernel)
    assert readings["centred"].isnan() and not readings["uncentred"].isnan()
    assert readings["centred_share"] == 0 and readings["relative_change"] == 0


def test_one_head_of_a_packed_attention_weight_is_a_layer_of_its_own() -> None:
    tokens, width, heads = torch.randn(7, 4, dtype=torch.float64), 4, 2
    packed = torch.randn(3 * width, width, dtype=torch.float64)
    gradients = torch.randn(7, 3 * width, dtype=torch.float64)
    rows = head_rows(3 * width, heads)["key 1"]
    weight, kernel = rows_of(packed, gradients.T @ gradients, rows)
    assert (rows.start, rows.stop) == (6, 8)
    assert torch.equal(weight, packed[6:8])
    assert torch.allclose(kernel, gradients[:, 6:8].T @ gradients[:, 6:8])
    assert torch.allclose(tokens @ weight.T, (tokens @ packed.T)[:, 6:8])


def test_shared_key_heads_single_projections_and_gates_are_named_row_by_row() -> None:
    grouped = head_rows(16, 6, shared_heads=1)
    assert list(grouped)[-2:] == ["key 0", "value 0"] and grouped["query 5"] == slice(10, 12)
    assert list(head_rows(8, 2, packed=False)) == ["head 0", "head 1"]
    gates = packed_rows(torch.nn.LSTM(3, 5).weight_hh_l0.shape[0], ("input", "forget", "cell", "output"))
    assert gates["cell"] == slice(10, 15)
    assert packed_rows(7, {"a": 3, "b": 4})["b"] == slice(3, 7)


def test_parts_that_do_not_fit_the_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="divide"):
        head_rows(10, 4)
    with pytest.raises(ValueError, match="hold 6 rows"):
        packed_rows(7, {"a": 6})
    with pytest.raises(ValueError, match="equal parts"):
        packed_rows(7, ("a", "b"))
    with pytest.raises(ValueError, match="choose nothing"):
        rows_of(torch.ones(4, 2), torch.eye(4), slice(9, 12))


def test_an_initial_weight_of_another_shape_is_refused() -> None:
    unchecked = inspect.unwrap(ansatz_readings)  # the tests check shapes before the function can
    with pytest.raises(ValueError, match=r"has the weight's shape \(4, 3\), got \(1, 3\)"):
        unchecked(torch.randn(4, 3), torch.randn(1, 3), torch.eye(4))


@pytest.mark.parametrize("measure", [centred_share, hybrid_correlation, relative_change])
def test_a_row_in_place_of_the_initial_weight_is_not_taken_for_all_rows(measure: Callable[..., torch.Tensor]) -> None:
    kernel = () if measure is relative_change else (torch.eye(4),)
    with pytest.raises(ValueError, match=r"has the weight's shape \(4, 3\), got \(1, 3\)"):
        inspect.unwrap(measure)(torch.randn(4, 3), torch.randn(1, 3), *kernel)


@pytest.mark.parametrize("measure", [random_basis_null, alignment_view])
def test_a_convolutions_weight_has_to_be_flattened_first(measure: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="flatten a convolution's weight"):
        inspect.unwrap(measure)(torch.randn(4, 3, 2, 2), torch.eye(4))
