"""Whatever the rung, the number is the same; and every gradient read is the brute-force one, not only their Gram."""

from __future__ import annotations

import pytest
import torch

from tangentlens.capture.factors import formed
from tangentlens.capture.measuring import Measurement, measuring
from tangentlens.kernels import plan
from tests.reference import tangent
from tests.zoo.known import NAMES, known_jacobian, measured, off

each_model = pytest.mark.parametrize("name", NAMES)


def gradients(measurement: Measurement, inputs: object) -> tangent.Jacobian:
    """What one capture of all examples says about every parameter, put together from its pieces."""
    names = list(measurement.wanted)
    pieces = measurement.retried(lambda: measurement.pieces(measurement.prepared(inputs), names))
    whole: tangent.Jacobian = {}
    for piece in pieces.values():
        gradient = formed(piece.factors, piece.shape).flat
        if piece.name not in whole:
            size = tangent.real_numbers(measurement.wanted[piece.name]).numel()
            whole[piece.name] = gradient.new_zeros(*gradient.shape[:2], size)
        place = slice(None) if piece.index is None else piece.index
        whole[piece.name][:, :, place] += gradient
    return whole


def assert_same(found: tangent.Jacobian, name: str, tolerance: float = 1e-10) -> None:
    true = known_jacobian(name)
    scale = torch.stack([of_parameter.norm() for of_parameter in true.values()]).norm()
    for key, of_parameter in true.items():
        if key in found:
            assert (found[key].double() - of_parameter).norm() <= tolerance * scale, key
        else:
            assert of_parameter.abs().max() == 0, f"{key} was missed"


@each_model
def test_the_gradients_of_one_capture_are_the_jacobian(name):
    model, inputs, options = measured(name, torch.float64)
    with measuring(model, inputs, **options) as measurement:
        assert_same(gradients(measurement, inputs), name)


@each_model
def test_the_loop_alone_gives_the_same_gradients(name):
    model, inputs, options = measured(name, torch.float64)
    with measuring(model, inputs, **options) as measurement:
        for key in measurement.wanted:
            measurement.reader.unreadable[key] = "left to the loop by this test"
            measurement.lower_rungs[key] = "loop"
        found = gradients(measurement, inputs)
        assert {measurement.rung(key) for key in measurement.wanted} == {"loop"}
    assert set(found) == set(known_jacobian(name))
    assert_same(found, name)


@each_model
def test_vmap_alone_gives_the_same_gradients_wherever_it_is_chosen(name):
    model, inputs, options = measured(name, torch.float64)
    with measuring(model, inputs, **options) as measurement:
        for key in measurement.wanted:
            measurement.reader.unreadable[key] = "left to the ladder by this test"
        found = gradients(measurement, inputs)
        assert {measurement.rung(key) for key in measurement.wanted} <= {"vmap", "loop"}
    assert set(found) == set(known_jacobian(name))
    assert_same(found, name)


@pytest.mark.parametrize(
    "name", ["mlp_tanh", "cnn", "siamese", "class_token", "tied_autoencoder", "einsum_of_odd_spellings"]
)
def test_vmap_is_chosen_for_models_it_can_follow(name):
    model, inputs, options = measured(name, torch.float64)
    with measuring(model, inputs, **options) as measurement:
        for key in measurement.wanted:
            measurement.reader.unreadable[key] = "left to the ladder by this test"
        gradients(measurement, inputs)
        assert {measurement.rung(key) for key in measurement.wanted} == {"vmap"}


def test_vmap_is_not_believed_where_it_errs():
    """torch 2.13 batches the backward pass of cdist wrongly, without any sign of it."""
    model, inputs, options = measured("radial_basis", torch.float64)
    parameters = {key: p.detach() for key, p in model.named_parameters()}

    def outputs(parameters, x):
        return torch.func.functional_call(model, parameters, (x[None],))[0]

    by_vmap = torch.func.vmap(torch.func.jacrev(outputs), (None, 0))(parameters, inputs)["centres"].flatten(2)
    if off(by_vmap, known_jacobian("radial_basis")["centres"]) < 1e-6:
        pytest.skip("this torch batches cdist rightly: nothing is left to mistrust here")
    rungs = {row.name: row.rung for row in plan(model, inputs, **options).rows}
    assert rungs["centres"] != "vmap"


def test_every_rung_occurs_in_the_zoo():
    seen: set[str] = set()
    for name in NAMES:
        model, inputs, options = measured(name, torch.float64)
        seen |= {row.rung for row in plan(model, inputs, **options).rows}
        if seen == {"rule", "vmap", "loop", "unused"}:
            return
    raise AssertionError(f"the zoo reaches only {sorted(seen)}")


@pytest.mark.parametrize(
    "name",
    ["mlp_tanh", "cnn_with_groups_and_dilation", "transposed_convolution", "embedding", "embedding_bag", "group_norm"]
    + ["instance_norm", "batch_norm_in_eval", "layer_norm", "rms_norm", "prelu", "learned_scalar_gates", "layer_scale"]
    + ["multihead_attention", "transformer_encoder", "lstm", "gru", "rnn", "conv3d", "conv1d_of_equal_sizes"]
    + ["einsum_weight_first", "weight_norm_by_parametrisation", "gpt2_padded_sdpa", "llama_eager", "bert_eager", "vit"]
    + ["mixtral_eager", "mixture_of_experts", "siamese", "tied_autoencoder"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_common_layers_are_served_by_rules(name, dtype):
    """Falling down the ladder is exact but slow: for these kinds it would be a regression."""
    model, inputs, options = measured(name, dtype)
    rungs = {row.name: row.rung for row in plan(model, inputs, **options).rows}
    assert set(rungs.values()) <= {"rule", "unused"}, rungs
