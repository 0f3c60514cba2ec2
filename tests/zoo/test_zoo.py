"""The zoo and its reference, checked against each other before anything is measured with them."""

from __future__ import annotations

import pytest
import torch

from tests.reference import tangent
from tests.zoo import BY_NAME, ENTRIES
from tests.zoo.known import NAMES, known_jacobian

# Here autograd's gradient is on purpose not the derivative: padding rows, stop-gradients, straight-through estimators,
# parameters that forward itself puts back to where they may be.
NOT_THE_DERIVATIVE = {
    "embedding_with_padding",
    "distilbert",
    "weight_with_a_stop_gradient",
    "straight_through",
    "implicit_layer",
    "weight_clamped_in_forward",
    "functional_embedding_with_max_norm",
}
PLAIN = [
    "mlp_tanh",
    "cnn_with_groups_and_dilation",
    "siamese",
    "tied_autoencoder",
    "einsum_of_odd_spellings",
    "gpt2_eager",
]


def outputs_of(name: str, model: torch.nn.Module, inputs: object) -> torch.Tensor:
    count = len(next(iter(known_jacobian(name).values())))
    each = [tangent.output_of_one_example(model, inputs, n, BY_NAME[name].outputs) for n in range(count)]
    return torch.stack(each).detach()


def test_the_zoo_holds_a_hundred_models():
    assert len(ENTRIES) >= 100


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_jacobian_is_finite_and_not_zero(name):
    jacobian = known_jacobian(name)
    assert all(torch.isfinite(of_parameter).all() for of_parameter in jacobian.values())
    assert sum(of_parameter.abs().sum() for of_parameter in jacobian.values()) > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_THE_DERIVATIVE])
def test_the_reference_jacobian_predicts_a_small_step(name):
    step, tolerance = 1e-6, 1e-6
    model, inputs = BY_NAME[name].built(torch.float64)
    parameters = tangent.trainable(model)
    direction = {key: torch.randn_like(parameter) for key, parameter in parameters.items()}
    predicted = sum(known_jacobian(name)[key] @ tangent.real_numbers(direction[key]) for key in parameters)

    def outputs_after(size: float) -> torch.Tensor:
        with torch.no_grad():
            for key, parameter in parameters.items():
                parameter.add_(size * direction[key])
        moved = outputs_of(name, model, inputs)
        with torch.no_grad():
            for key, parameter in parameters.items():
                parameter.sub_(size * direction[key])
        return moved

    found = (outputs_after(step) - outputs_after(-step)) / (2 * step)
    assert (found - predicted).norm() < tolerance * predicted.norm()


@pytest.mark.parametrize("name", PLAIN)
def test_the_reference_jacobian_is_that_of_jacrev(name):
    entry = BY_NAME[name]
    model, inputs = entry.built(torch.float64)

    def outputs(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        args, kwargs = (
            ((), inputs) if isinstance(inputs, dict) else (inputs if isinstance(inputs, tuple) else (inputs,), {})
        )
        raw = torch.func.functional_call(model, parameters, args, kwargs)
        raw = raw if entry.outputs is None else entry.outputs(raw)
        return raw.flatten(1)

    by_jacrev = torch.func.jacrev(outputs)({key: p.detach() for key, p in model.named_parameters()})
    for key, of_parameter in known_jacobian(name).items():
        torch.testing.assert_close(by_jacrev[key].flatten(2), of_parameter, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_alone_gives_what_it_gives_in_the_batch(name):
    """Otherwise no per-example kernel exists, and the entry would test nothing."""
    entry = BY_NAME[name]
    model, inputs = entry.built(torch.float64)
    alone = outputs_of(name, model, inputs)
    with tangent.float32_is_float64():
        raw = tangent.called(model, inputs)
    raw = entry.outputs(raw) if entry.outputs is not None else raw if isinstance(raw, torch.Tensor) else raw.logits
    torch.testing.assert_close(
        raw.detach().flatten(1) if raw.dim() > 1 else raw.detach()[:, None], alone, rtol=1e-11, atol=1e-12
    )
