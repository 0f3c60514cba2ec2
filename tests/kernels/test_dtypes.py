"""Kernels come in the model's own precision or the one asked for; the parameters are never converted."""

from __future__ import annotations

import pytest
import torch

from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, entk_product
from tests.capture.undisturbed_state import differences, state
from tests.reference import tangent
from tests.zoo.known import TOLERANCE, known_jacobian, known_mean_output_jacobian, measured, off

ASKED = [
    "mlp_tanh",
    "residual_net_in_eval",
    "transformer_encoder",
    "lstm",
    "weight_norm_by_hook",
    "gpt2_padded_sdpa",
    "loop_until_small",
    "complex_rotary_buffer",
    "complex_weight",
    "complex_inputs",
]


@pytest.mark.parametrize("name", ASKED)
def test_float64_on_request_gives_the_float64_kernel_of_a_float32_model(name):
    model, inputs, options = measured(name, torch.float32)
    before = state(model, inputs)
    found = entk_full(model, inputs, dtype=torch.float64, **options)
    assert found.dtype == torch.float64
    assert off(found, tangent.full_kernel(known_jacobian(name))) < TOLERANCE[torch.float64]
    assert all(parameter.dtype.to_real() == torch.float32 for parameter in model.parameters())
    assert differences(before, state(model, inputs)) == []


def test_every_kernel_function_takes_a_dtype():
    model, inputs, options = measured("mlp_tanh", torch.float32)
    options |= {"dtype": torch.float64}
    known = known_jacobian("mlp_tanh")
    assert off(entk(model, inputs, **options), tangent.kernel(known)) < 1e-10
    assert (
        off(entk_mean_output(model, inputs, **options), tangent.kernel(known_mean_output_jacobian("mlp_tanh"))) < 1e-10
    )
    assert off(sum(entk_by_layer(model, inputs, **options).values()), tangent.kernel(known)) < 1e-10
    product = entk_product(model, inputs, **options)
    vectors = torch.randn(product.shape[1], 2, dtype=torch.float64)
    assert product.dtype == torch.float64
    assert off(product @ vectors, tangent.product(known, vectors)) < 1e-10


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["mlp_tanh", "cnn", "transformer_encoder", "broadcast_position_embedding"])
def test_half_precision_models_are_measured_in_float32(name, half):
    model, inputs, options = measured(name, half)
    before = state(model, inputs)
    found = entk_full(model, inputs, **options)
    assert differences(before, state(model, inputs)) == []
    assert found.dtype == torch.float32
    true = tangent.full_kernel(tangent.jacobian(tangent.in_float64(model), converted_to_float64(inputs), **options))
    assert off(found, true) < TOLERANCE[torch.float32]


def converted_to_float64(inputs):
    return inputs.double() if inputs.is_floating_point() else inputs


def test_a_float64_model_can_be_measured_in_float32():
    model, inputs, options = measured("mlp_tanh", torch.float64)
    found = entk_full(model, inputs, dtype=torch.float32, **options)
    assert found.dtype == torch.float32 and next(model.parameters()).dtype == torch.float64
    assert off(found, tangent.full_kernel(known_jacobian("mlp_tanh"))) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_a_dtype_that_is_no_real_number_is_refused(dtype):
    model, inputs, options = measured("mlp_tanh", torch.float32)
    with pytest.raises((TypeError, ValueError), match="float"):
        entk(model, inputs, dtype=dtype, **options)
