"""Values of measures become rows with named dimensions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tangentlens.record import Measure
from tangentlens.record.measure import as_array, rows_of


def measure(name: str = "mine/value", dims: tuple[str, ...] = (), **settings: object) -> Measure:
    return Measure(name, dims, lambda snapshot: None, **settings)  # type: ignore[arg-type]


def test_numbers_tensors_and_arrays_become_floats_of_their_own_precision() -> None:
    assert as_array(3).dtype == np.float64 and as_array(True) == 1.0
    assert as_array(torch.ones(2)).dtype == np.float32
    assert as_array(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32
    assert as_array(torch.ones(2, dtype=torch.float64, requires_grad=True)).dtype == np.float64
    assert as_array(torch.ones(())).shape == ()


def test_a_mapping_labels_the_first_dimension() -> None:
    row = rows_of(measure(dims=("layer", "mode")), {"a": torch.zeros(3), "b": torch.ones(3)})["mine/value"]
    assert row.values.tolist() == [[0] * 3, [1] * 3] and row.labels["layer"] == ["a", "b"]


def test_a_star_spreads_a_mapping_over_groups() -> None:
    rows = rows_of(measure("mine/layers/*/value", ("unit",)), {"net.0": torch.ones(2), "": torch.ones(5)})
    assert {name: row.values.shape for name, row in rows.items()} == {
        "mine/layers/net.0/value": (2,), "mine/layers/model/value": (5,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "value"}, "named group/variable"),
        ({"name": "/mine/value"}, "named group/variable"),
        ({"name": "overhead/value"}, "outside of overhead"),
        ({"dims": ("neuron",)}, "got neuron for mine/value"),
        ({"dims": ("step",)}, "got step for"),
        ({"dims": ("unit", "unit")}, r"a square matrix is \(unit, other\)"),
    ],
)
def test_a_measure_with_a_wrong_name_or_dimension_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(**arguments)


@pytest.mark.parametrize(
    ("dims", "value", "message"),
    [
        (("unit",), torch.zeros(2, 2), r"has dimensions \('unit',\), but its value has shape \(2, 2\)"),
        ((), {"a": 1.0}, "no dimension for the keys"),
        ((), "text", "real and numeric"),
        ((), 1j, "real and numeric"),
    ],
)
def test_a_value_that_does_not_fit_its_dimensions_is_refused(
    dims: tuple[str, ...], value: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rows_of(measure(dims=dims), value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([("not", "good"), ("not", "bad")], "labels token by texts or numbers"),
        ((("not", "good"), ("not", "bad")), r"has token along \('not', 'good'\), of shape \(2,\)"),
        (["good"], "1 labels of token for 2 values"),
    ],
)
def test_labels_that_could_not_be_written_are_refused_before_they_reach_the_store(labels: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_of(measure(dims=("token",), coords={"token": labels}), torch.zeros(2))
