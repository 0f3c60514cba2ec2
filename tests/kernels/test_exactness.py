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
# Rounding is the same everywhere: a third of the models, of every family, are measured in float32 too.
CASES = [(name, torch.float64) for name in NAMES] + [(name, torch.float32) for name in NAMES[::3]]
each_case = pytest.mark.parametrize(
    ("name", "dtype"), CASES, ids=[f"{name}-{str(dtype).removeprefix('torch.')}" for name, dtype in CASES]
)


@each_case
def test_the_full_kernel_is_the_gram_of_the_jacobian(name, dtype):
    model, inputs, options = measured(name, dtype)
    found = entk_full(model, inputs, **options)
    assert found.dtype == dtype and not found.requires_grad
    assert off(found, tangent.full_kernel(known_jacobian(name))) < TOLERANCE[dtype]


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


@each_case
def test_cross_kernels_hold_rows_against_other_columns(name, dtype):
    model, inputs, options = measured(name, dtype)
    rows, columns = rows_and_columns(name)
    of_rows, of_columns = at(known_jacobian(name), rows), at(known_jacobian(name), columns)
    sides = examples(inputs, rows), examples(inputs, columns)
    assert off(entk_full(model, *sides, **options), tangent.full_kernel(of_rows, of_columns)) < TOLERANCE[dtype]
    assert off(entk(model, *sides, **options), tangent.kernel(of_rows, of_columns)) < TOLERANCE[dtype]
    of_mean = entk_mean_output(model, *sides, **options)
    # two examples' mean-output gradients may be all but orthogonal: the error is relative to what could be there
    mean = known_mean_output_jacobian(name)
    true, scale = tangent.kernel(at(mean, rows), at(mean, columns)), tangent.kernel(mean).norm()
    assert (of_mean.double() - true).norm() < TOLERANCE[dtype] * scale


@each_case
def test_the_kernels_of_the_layers_are_right_and_sum_to_the_whole(name, dtype):
    model, inputs, options = measured(name, dtype)
    whole = tangent.kernel(known_jacobian(name))
    for by, true in (
        ("parameter", tangent.kernel_by_parameter(known_jacobian(name))),
        ("module", tangent.kernel_by_module(known_jacobian(name))),
    ):
        found = entk_by_layer(model, inputs, by=by, **options)
        assert set(found) == set(true)
        assert off(sum(found.values()), whole) < TOLERANCE[dtype]
        for layer, of_layer in found.items():
            # rounding enters a layer's small gradients at the size of the large ones it was computed from
            scale = (true[layer].norm() * whole.norm()).sqrt() + TOLERANCE[dtype] * whole.norm()
            assert (of_layer.double() - true[layer]).norm() < TOLERANCE[dtype] * scale, layer


@each_case
def test_products_are_those_of_the_full_kernel(name, dtype):
    model, inputs, options = measured(name, dtype)
    rows, columns = rows_and_columns(name)
    jacobian = known_jacobian(name)
    true = tangent.full_kernel(jacobian)
    count, outputs = true.shape[:2]

    operator = entk_product(model, inputs, **options)
    assert tuple(operator.shape) == (count * outputs, count * outputs) and operator.dtype == dtype
    vectors = torch.randn(count * outputs, 3, dtype=dtype)
    assert off(operator @ vectors, tangent.product(jacobian, vectors.double())) < TOLERANCE[dtype]

    operator = entk_product(model, examples(inputs, rows), examples(inputs, columns), **options)
    assert tuple(operator.shape) == (len(rows) * outputs, len(columns) * outputs)
    vectors = torch.randn(len(columns) * outputs, 2, dtype=dtype)
    true = tangent.product(at(jacobian, rows), vectors.double(), at(jacobian, columns))
    assert off(operator @ vectors, true) < TOLERANCE[dtype]


@each_model
def test_the_gram_of_parameters_is_the_other_side_of_the_jacobian(name):
    if sum(of_parameter.shape[-1] for of_parameter in known_jacobian(name).values()) > 400:
        pytest.skip("the dual side is for few parameters; the brute-force one is slow beyond them")
    model, inputs, options = measured(name, torch.float64)
    found = jacobian_gram(model, inputs, **options)
    assert off(found, tangent.gram_of_parameters(known_jacobian(name))) < TOLERANCE[torch.float64]
