"""Moments of one capture, against gradients found by perturbing the layer itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tangentlens.kernels import agop, features, forward_kernel, layer_moments, nfm, ptk, ptk_covariance
from tests.capture.undisturbed_state import differences, state
from tests.reference import moments
from tests.reference.tangent import called, float32_is_float64
from tests.zoo.entry import Written
from tests.zoo.known import measured, off

WITH_LAYERS = [
    ("mlp_tanh", "0"),
    ("mlp_tanh", "2"),
    ("mlp_of_equal_sizes", "2"),
    ("inplace_relu_mlp", "0"),
    ("inplace_relu_mlp", "4"),
    ("positions_of_equal_sizes", "a"),
    ("mixer", "channels"),
    ("residual_mlp", "blocks.1.0"),
    ("class_token", "mix"),
    ("transformer_encoder", "body.layers.0.linear1"),
    ("learned_queries", "key"),
    ("bert_eager", "bert.encoder.layer.0.attention.self.query"),
    ("llama_eager", "model.layers.0.self_attn.k_proj"),
    ("llama_eager", "model.layers.0.mlp.down_proj"),
    ("frozen_parameters", "2"),
]
CONVOLUTIONS = [
    ("cnn", "0"),
    ("cnn", "3"),
    ("residual_net_in_eval", "3.one"),
    ("channels_last", "0"),
    ("depthwise_separable", "1"),
]
on_layers = pytest.mark.parametrize(("name", "layer"), WITH_LAYERS + CONVOLUTIONS)


def read(name):
    return measured(name, torch.float64)


@on_layers
def test_ptk_is_the_gram_of_the_layers_output_gradients(name, layer):
    model, inputs, options = read(name)
    true = moments.ptk(model, inputs, layer, options["outputs"])
    assert off(ptk(model, inputs, layer, **options), true) < 1e-10


@on_layers
def test_ptk_covariance_is_the_sum_over_examples_outputs_and_positions(name, layer):
    model, inputs, options = read(name)
    true = moments.ptk_covariance(model, inputs, layer, options["outputs"])
    assert off(ptk_covariance(model, inputs, layer, **options), true) < 1e-10


@on_layers
def test_agop_is_the_sum_of_outer_products_of_gradients_by_the_layers_input(name, layer):
    model, inputs, options = read(name)
    found = agop(model, inputs, layer, **options)
    assert off(found, moments.agop(model, inputs, layer, options["outputs"])) < 1e-10
    weight = model.get_submodule(layer).weight.detach().flatten(1)
    assert off(found, weight.T @ ptk_covariance(model, inputs, layer, **options) @ weight) < 1e-12
    assert off(nfm(model, layer), weight.T @ weight) < 1e-12


@pytest.mark.parametrize(("name", "layer"), WITH_LAYERS)
def test_the_forward_kernel_is_the_gram_of_the_layers_inputs(name, layer):
    model, inputs, _ = read(name)
    a = layer_inputs(model, inputs, layer).flatten(1)
    assert off(forward_kernel(model, inputs, layer), a @ a.T) < 1e-12


def layer_inputs(model: nn.Module, inputs, layer: str) -> torch.Tensor:
    seen = []
    hook = model.get_submodule(layer).register_forward_pre_hook(
        lambda module, args: seen.append(args[0].detach().clone())
    )
    with float32_is_float64():
        called(model, inputs)
    hook.remove()
    (only,) = seen
    return only


@pytest.mark.parametrize("name", ["mlp_tanh", "cnn", "transformer_encoder", "llama_eager", "inplace_relu_mlp"])
def test_the_moments_of_all_layers_from_one_capture_are_those_of_each_layer_alone(name):
    model, inputs, options = read(name)
    every = layer_moments(model, inputs, **options)
    linear_or_conv = {key for key, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    assert linear_or_conv <= set(every)
    for layer in sorted(linear_or_conv):
        if layer.endswith("self_attn.out_proj"):  # attention takes its weight without calling it: no hook sees it
            continue
        found = every[layer]
        b = moments.output_gradients(model, inputs, layer, options["outputs"])
        assert off(found.ptk_covariance, torch.einsum("nctq,nctr->qr", b, b)) < 1e-10
        module = model.get_submodule(layer)
        torch.testing.assert_close(found.weight, module.weight.detach().flatten(1))
        a = layer_inputs(model, inputs, layer)
        if isinstance(module, nn.Conv2d):
            settings = {"dilation": module.dilation, "padding": module.padding, "stride": module.stride}
            a = nn.functional.unfold(a, module.kernel_size, **settings).transpose(1, 2)
        a = a.flatten(0, -2)
        assert off(found.input_moment, a.T @ a) < 1e-10
        assert found.rows == len(a) * b.shape[1]


def test_chosen_layers_alone_are_read():
    model, inputs, options = read("mlp_tanh")
    assert set(layer_moments(model, inputs, layers=["2"], **options)) == {"2"}


def test_moments_keep_their_weight_while_the_network_trains_on():
    model, inputs, options = read("mlp_tanh")
    moments = layer_moments(model, inputs, layers=["2"], **options)["2"]
    before = moments.weight.clone()
    with torch.no_grad():
        model.get_submodule("2").weight.mul_(2)
    assert torch.equal(moments.weight, before)


def test_grouped_convolutions_have_block_diagonal_moments():
    """As patches a grouped convolution is one matrix per group: nothing couples the groups."""
    model, inputs, options = read("cnn_with_groups_and_dilation")
    layer = model[0]  # 8 of 4 channels in 2 groups, 3x3, dilated and strided
    found = agop(model, inputs, "0", **options)
    settings = {"dilation": layer.dilation, "padding": layer.padding, "stride": layer.stride}
    true = torch.zeros(36, 36, dtype=torch.float64)
    for group in range(2):
        weight = layer.weight.detach()[4 * group : 4 * group + 4].flatten(1)  # (4, 18)
        b = moments.output_gradients(model, inputs, "0", options["outputs"])[..., 4 * group : 4 * group + 4].flatten(
            0, 2
        )
        true[18 * group : 18 * group + 18, 18 * group : 18 * group + 18] = weight.T @ (b.T @ b) @ weight
    assert off(found, true) < 1e-10
    moment = layer_moments(model, inputs, layers=["0"], **options)["0"].input_moment
    patches = nn.functional.unfold(inputs, layer.kernel_size, **settings).transpose(1, 2).flatten(0, 1)
    dense = patches.T @ patches
    dense[:18, 18:] = dense[18:, :18] = 0
    assert off(moment, dense) < 1e-10


@pytest.mark.parametrize(
    "name", ["mlp_tanh", "cnn", "lstm", "transformer_encoder", "bert_eager", "gpt2_eager", "siamese"]
)
def test_features_are_the_input_of_the_head_found_by_itself(name):
    model, inputs, options = read(name)
    if name == "siamese":
        with pytest.raises(ValueError, match="layer"):  # the head is called twice: no one feature vector per example
            features(model, inputs, **options)
        return
    seen = features(model, inputs, **options)
    head = model.get_submodule(seen.layer)
    assert isinstance(head, nn.Linear)
    assert seen.values.shape[1] == head.in_features and len(seen.values) == len(seen.outputs)


def test_features_read_the_layer_that_is_named():
    model, inputs, options = read("mlp_tanh")
    seen = features(model, inputs, layer="2", **options)
    assert seen.layer == "2" and off(seen.values, model[:2](inputs).detach()) < 1e-12


@pytest.mark.parametrize("function", [ptk, ptk_covariance, agop, forward_kernel, features])
def test_an_unknown_layer_is_an_error_that_names_the_known_ones(function):
    model, inputs, _ = read("mlp_tanh")
    with pytest.raises(ValueError, match=r"(?s)conv9.*'?0'?.*'?4'?"):
        function(model, inputs, "conv9")


def test_an_unknown_layer_of_the_feature_matrix_is_an_error_that_names_the_known_ones():
    model, _, _ = read("mlp_tanh")
    with pytest.raises(ValueError, match=r"(?s)conv9.*'?0'?.*'?4'?"):
        nfm(model, "conv9")


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("weight_norm_by_parametrisation", "3"),
        ("weight_norm_by_hook", "0"),
        ("spectral_norm_by_parametrisation", "0"),
        ("spectral_norm_by_hook", "0"),
        ("orthogonal_weight", "0"),
    ],
)
def test_a_computed_weight_has_the_moments_of_the_map_it_is(name, layer):
    model, inputs, options = read(name)
    before = state(model, inputs)
    true = moments.agop(model, inputs, layer, options["outputs"])
    assert off(agop(model, inputs, layer, **options), true) < 1e-10
    assert off(layer_moments(model, inputs, **options)[layer].agop, true) < 1e-10
    assert off(ptk(model, inputs, layer, **options), moments.ptk(model, inputs, layer, options["outputs"])) < 1e-10
    weight = model.get_submodule(layer).weight.detach()
    assert off(nfm(model, layer), weight.T @ weight) < 1e-10
    assert differences(before, state(model, inputs)) == []


def in_first() -> tuple[nn.Module, torch.Tensor]:
    model = Written(lambda m, x: m.head((x @ m.weight).tanh()), weight=torch.randn(5, 6), head=nn.Linear(6, 2))
    return model.double(), torch.randn(4, 5, dtype=torch.float64)


def test_the_feature_matrix_of_a_raw_parameter_lies_on_the_side_the_data_enters():
    model, inputs = in_first()
    weight = model.weight.detach()
    assert off(nfm(model, "weight", inputs), weight @ weight.T) < 1e-12
    with pytest.raises(ValueError, match=r"(?s)weight.*pass inputs"):
        nfm(model, "weight")


def test_the_feature_matrix_of_several_weights_asks_for_one():
    model, inputs, _ = read("lstm")
    layer = next(name for name, module in model.named_modules() if isinstance(module, nn.LSTM))
    with pytest.raises(ValueError, match=r"(?s)weight_ih_l0.*name one"):
        nfm(model, layer)


@pytest.mark.parametrize("function", [ptk, ptk_covariance, agop])
def test_a_layer_that_no_rule_reads_is_an_error_that_says_why(function):
    model = Written(lambda m, x: m.head(torch.linalg.solve(m.a, x.T).T), a=torch.randn(3, 3), head=nn.Linear(3, 2))
    with pytest.raises(ValueError, match=r"(?s)linear map.*got a: no rule for .*Solve"):
        function(model, torch.randn(4, 3), "a")


@pytest.mark.parametrize("function", [ptk, ptk_covariance, agop])
def test_a_shared_layer_is_read_by_any_of_its_names(function):
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    model[2].weight = model[0].weight
    inputs = torch.randn(4, 3, dtype=torch.float64)
    assert torch.equal(function(model, inputs, "2"), function(model, inputs, "0"))
    assert torch.equal(nfm(model, "2"), nfm(model, "0"))
