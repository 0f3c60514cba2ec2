"""Kernels come in the model's own precision or the one asked for; the parameters are never converted."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from tangentlens.errors import BadInput
from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, entk_product
from tests.capture.undisturbed_state import differences, state
from tests.kernels.messages import says
from tests.reference import tangent
from tests.zoo.entry import Written, mlp
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


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_casts_to_half_precision_inside_a_model_follow_its_parameters(half, dtype):
    """A trunk of half precision under a head of float32, as they are written for speed."""

    def forward(m, x):
        hidden = m.trunk(x.to(half)).tanh()
        return m.head((hidden.half() if half == torch.float16 else hidden.bfloat16()).float())

    model, inputs = Written(forward, trunk=nn.Linear(3, 4).to(half), head=nn.Linear(4, 2)), torch.randn(4, 3)
    plain = nn.Sequential(deepcopy(model.trunk), nn.Tanh(), deepcopy(model.head))
    true = tangent.full_kernel(tangent.jacobian(tangent.in_float64(plain), inputs.double()))
    assert off(entk_full(model, inputs, dtype=dtype), true) < TOLERANCE[dtype]


@pytest.mark.parametrize("kind", ["scaled", "tied"])
def test_a_copy_in_another_precision_does_not_lose_what_was_made_of_parameters_before_forward(kind):
    """A view kept from __init__ is still the parameter's own in the user's model, and nobody's in a copy."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(3, 4)
            self.gain = nn.Parameter(torch.randn(4))
            self.kept = self.gain.view(1, 4) if kind == "scaled" else self.net[0].weight.t()

        def forward(self, x):
            hidden = self.net(x).tanh()
            return hidden * self.kept if kind == "scaled" else nn.functional.linear(hidden, self.kept)

    model, inputs = Model(), torch.randn(4, 3)
    true = tangent.full_kernel(tangent.jacobian(model, inputs))
    assert off(entk_full(model, inputs), true.double()) < TOLERANCE[torch.float32]
    with pytest.raises(BadInput, match=says("float64", "kept", "in forward")):
        entk_full(model, inputs, dtype=torch.float64)


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
