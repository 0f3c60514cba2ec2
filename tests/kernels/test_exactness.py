"""Every kernel of every model of the zoo is that of the brute-force float64 Jacobian."""

from __future__ import annotations

import pytest
import torch

from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, entk_product, jacobian_gram
from tests.reference import tangent
from tests.reference.tangent import at, examples
from tests.zoo.known import (
    NAMES,
    TOLERANCE,
    known_jacobian,
    known_mean_output_jacobian,
    measured,
    off,
    rows_and_columns,
)

each_model = pytest.mark.parametrize("name", NAMES)
# Every model is measured in float32 too, in one test; the averages over outputs, which are sums of the same numbers, in
# float32 for a third of them, of every family.
CASES = [(name, torch.float64) for name in NAMES] + [(name, torch.float32) for name in NAMES[::3]]
each_case = pytest.mark.parametrize(
    ("name", "dtype"), CASES, ids=[f"{name}-{str(dtype).removeprefix('torch.')}" for name, dtype in CASES]
)


@each_model
def test_in_float32_kernels_layers_and_products_are_as_exact_as_float32_allows(name):
    model, inputs, options = measured(name, torch.float32)
    jacobian, tolerance = known_jacobian(name), TOLERANCE[torch.float32]
    found = entk_full(model, inputs, **options)
    assert found.dtype == torch.float32 and not found.requires_grad
    assert off(found, tangent.full_kernel(jacobian)) < tolerance

    assert_layers(entk_by_layer(model, inputs, **options), tangent.kernel_by_module(jacobian), name, tolerance)

    rows, columns = rows_and_columns(name)
    of_rows, of_columns = at(jacobian, rows), at(jacobian, columns)
    sides = examples(inputs, rows), examples(inputs, columns)
    assert off(entk_full(model, *sides, **options), tangent.full_kernel(of_rows, of_columns)) < tolerance

    operator = entk_product(model, *sides, **options)
    vectors = torch.randn(operator.shape[1], 2)
    assert operator.dtype == torch.float32
    assert off(operator @ vectors, tangent.product(of_rows, vectors.double(), of_columns)) < tolerance


def assert_layers(found, true, name, tolerance):
    whole = tangent.kernel(known_jacobian(name))
    assert set(found) == set(true)
    assert off(sum(found.values()), whole) < tolerance
    for layer, of_layer in found.items():
        # rounding enters a layer's small gradients at the size of the large ones it was computed from
        scale = (true[layer].norm() * whole.norm()).sqrt() + tolerance * whole.norm()
        assert (of_layer.double() - true[layer]).norm() < tolerance * scale, layer


@each_model
def test_the_full_kernel_is_the_gram_of_the_jacobian(name):
    model, inputs, options = measured(name, torch.float64)
    found = entk_full(model, inputs, **options)
    assert found.dtype == torch.float64 and not found.requires_grad
    assert off(found, tangent.full_kernel(known_jacobian(name))) < TOLERANCE[torch.float64]


@each_case
def test_the_kernel_is_the_mean_over_outputs_of_the_per_output_kernels(name, dtype):
    model, inputs, options = measured(name, dtype)
    found = entk(model, inputs, **options)
    assert found.dtype == dtype and not found.requires_grad
    assert off(found, tangent.kernel(known_jacobian(name))) < TOLERANCE[dtype]


@each_case
def test_the_kernel_of_the_mean_output_is_the_gram_of_its_gradient(name, dtype):
    model, inputs, options = measured(name, dtype)
    found = entk_mean_output(model, inputs, **options)
    assert found.dtype == dtype
    assert off(found, tangent.kernel(known_mean_output_jacobian(name))) < TOLERANCE[dtype]


@each_model
def test_cross_kernels_hold_rows_against_other_columns(name):
    model, inputs, options = measured(name, torch.float64)
    tolerance = TOLERANCE[torch.float64]
    rows, columns = rows_and_columns(name)
    of_rows, of_columns = at(known_jacobian(name), rows), at(known_jacobian(name), columns)
    sides = examples(inputs, rows), examples(inputs, columns)
    assert off(entk_full(model, *sides, **options), tangent.full_kernel(of_rows, of_columns)) < tolerance
    assert off(entk(model, *sides, **options), tangent.kernel(of_rows, of_columns)) < tolerance
    of_mean = entk_mean_output(model, *sides, **options)
    # two examples' mean-output gradients may be all but orthogonal: the error is relative to what could be there
    mean = known_mean_output_jacobian(name)
    true, scale = tangent.kernel(at(mean, rows), at(mean, columns)), tangent.kernel(mean).norm()
    assert (of_mean - true).norm() < tolerance * scale


@each_model
def test_the_kernels_of_the_layers_are_right_and_sum_to_the_whole(name):
    model, inputs, options = measured(name, torch.float64)
    for by, true in (
        ("parameter", tangent.kernel_by_parameter(known_jacobian(name))),
        ("module", tangent.kernel_by_module(known_jacobian(name))),
    ):
        assert_layers(entk_by_layer(model, inputs, by=by, **options), true, name, TOLERANCE[torch.float64])


@each_model
def test_products_are_those_of_the_full_kernel(name):
    model, inputs, options = measured(name, torch.float64)
    rows, columns = rows_and_columns(name)
    jacobian, tolerance = known_jacobian(name), TOLERANCE[torch.float64]
    true = tangent.full_kernel(jacobian)
    count, outputs = true.shape[:2]

    operator = entk_product(model, inputs, **options)
    assert tuple(operator.shape) == (count * outputs, count * outputs) and operator.dtype == torch.float64
    vectors = torch.randn(count * outputs, 3, dtype=torch.float64)
    assert off(operator @ vectors, tangent.product(jacobian, vectors)) < tolerance

    operator = entk_product(model, examples(inputs, rows), examples(inputs, columns), **options)
    assert tuple(operator.shape) == (len(rows) * outputs, len(columns) * outputs)
    vectors = torch.randn(len(columns) * outputs, 2, dtype=torch.float64)
    true = tangent.product(at(jacobian, rows), vectors, at(jacobian, columns))
    assert off(operator @ vectors, true) < tolerance


@each_model
def test_the_gram_of_parameters_is_the_other_side_of_the_jacobian(name):
    if sum(of_parameter.shape[-1] for of_parameter in known_jacobian(name).values()) > 400:
        pytest.skip("the dual side is for few parameters; the brute-force one is slow beyond them")
    model, inputs, options = measured(name, torch.float64)
    found = jacobian_gram(model, inputs, **options)
    assert off(found, tangent.gram_of_parameters(known_jacobian(name))) < TOLERANCE[torch.float64]
