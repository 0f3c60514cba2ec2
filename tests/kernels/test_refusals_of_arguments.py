"""Inputs, outputs and settings that make no sense are refused at the border: the message says expected, got, do."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch
from torch import nn, randn

from tangentlens.kernels import (
    entk,
    entk_by_layer,
    entk_full,
    entk_mean_output,
    entk_product,
    jacobian_gram,
    jacobian_product,
    layer_moments,
    plan,
    ptk,
)
from tests.kernels.messages import every_function, says
from tests.zoo.entry import Written, mlp


@every_function
def test_inputs_of_different_lengths_are_refused_with_their_lengths(function):
    model = Written(lambda m, x, y: m.net(x) * y, net=mlp(3, 4, 2))
    with pytest.raises(ValueError, match=says("4", "3", "example")):
        function(model, (randn(4, 3), randn(3, 2)))
    with pytest.raises(ValueError, match=says("'x'|x:", "'y'|y:", "example")):
        function(model, {"x": randn(4, 3), "y": randn(3, 2)})


def test_no_examples_are_refused():
    with pytest.raises(ValueError, match=says("at least one example")):
        entk(mlp(3, 4, 2), randn(0, 3))
    with pytest.raises(ValueError, match=says("at least one example")):
        entk(mlp(3, 4, 2), randn(2, 3), randn(0, 3))


def test_inputs_without_a_tensor_are_refused():
    with pytest.raises(TypeError, match=says("tensor", "tuple", "dict", "list|str")):
        entk(mlp(3, 4, 2), "examples")


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (lambda z: (z, z), "tuple"),
        (lambda z: {"score": z}, "score"),
        (lambda z: [z], "list"),
        (lambda z: None, "NoneType"),
        (lambda z: "text", "str"),
    ],
)
def test_an_unknown_output_type_is_named_and_outputs_is_offered(returned, found):
    model = Written(lambda m, x: returned(m.net(x)), net=mlp(3, 4, 2))
    with pytest.raises(TypeError, match=says(found, "outputs=")):
        entk(model, randn(4, 3))


def test_outputs_that_return_no_tensor_are_named():
    with pytest.raises(TypeError, match=says("outputs", "tuple")):
        entk(mlp(3, 4, 2), randn(4, 3), outputs=lambda raw: (raw, raw))


@pytest.mark.parametrize("outputs", [lambda raw: raw.sum(), lambda raw: raw.T, lambda raw: raw[:2]])
def test_outputs_that_lose_the_example_axis_are_refused_with_their_shape(outputs):
    with pytest.raises(ValueError, match=says("example", "first axis", "outputs=")):
        entk(mlp(3, 4, 2), randn(4, 3), outputs=outputs)


def test_outputs_that_are_whole_numbers_are_refused():
    with pytest.raises((TypeError, ValueError), match=says("float", "int64")):
        entk(mlp(3, 4, 2), randn(4, 3), outputs=lambda raw: raw.argmax(1))


def test_outputs_cut_off_from_the_parameters_are_refused():
    """A kernel of zeros would pass for a measurement."""
    with pytest.raises(ValueError, match=says("depend|gradient|graph|detach")):
        entk(mlp(3, 4, 2), randn(4, 3), outputs=lambda raw: raw.detach())


@every_function
@pytest.mark.parametrize("globs", ["decoder.*", ["0.*", "decoder.*"]])
def test_a_glob_that_matches_nothing_is_refused_and_the_names_are_shown(function, globs):
    with pytest.raises(ValueError, match=says(r"decoder\.\*", r"0\.weight")):
        function(mlp(3, 4, 2), randn(4, 3), parameters=globs)


def test_no_globs_at_all_are_refused():
    with pytest.raises(ValueError, match=says("parameters", r"0\.weight")):
        entk(mlp(3, 4, 2), randn(4, 3), parameters=[])


def test_an_unknown_by_is_refused_with_the_two_choices():
    with pytest.raises(
        (ValueError, TypeError), match=says("module", "parameter", "layer")
    ):  # checked types speak first
        entk_by_layer(mlp(3, 4, 2), randn(4, 3), by="layer")


@pytest.mark.parametrize("chunk", [0, -1])
@pytest.mark.parametrize(
    "function", [entk, entk_full, entk_mean_output, entk_by_layer, plan, entk_product, jacobian_gram, layer_moments]
)
def test_a_chunk_that_is_not_positive_is_refused(function, chunk):
    with pytest.raises(ValueError, match=says("chunk", str(chunk))):
        function(mlp(3, 4, 2), randn(4, 3), chunk=chunk)


@pytest.mark.parametrize(
    ("option", "facts"),
    [("chunk=2.5", ("chunk=", "2.5", "whole number")), ("outputs='logits'", ("outputs=", "'logits'", "lambda"))],
)
def test_arguments_of_the_wrong_type_are_named_where_types_are_not_checked(option, facts):
    """In a process of its own: the types that this one checks speak first."""
    call = f"import torch, tangentlens as tl; tl.entk(torch.nn.Linear(3, 2), torch.randn(4, 3), {option})"
    ended = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True)
    assert re.match(says("TypeError", *facts), ended.stderr.splitlines()[-1]), ended.stderr


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_that_is_not_positive_is_refused_of_one_layer_and_of_directions(chunk):
    with pytest.raises(ValueError, match=says("chunk", str(chunk))):
        ptk(mlp(3, 4, 2), randn(4, 3), "0", chunk=chunk)
    with pytest.raises(ValueError, match=says("chunk", str(chunk))):
        jacobian_product(mlp(3, 4, 2), randn(4, 3), randn(26, 1), chunk=chunk)


def test_a_plan_of_an_unknown_reduction_is_refused_with_the_two_choices():
    with pytest.raises((ValueError, TypeError), match=says("full", "mean")):  # checked types speak first
        plan(mlp(3, 4, 2), randn(4, 3), reduction="trace")


def test_outputs_without_a_number_are_refused_with_their_shape():
    with pytest.raises(ValueError, match=says("at least one", r"\(4, 0\)", "outputs=")):
        entk(mlp(3, 4, 2), randn(4, 3), outputs=lambda raw: raw[:, :0])


def test_a_shared_parameter_goes_by_any_of_its_names():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    x = randn(4, 3)
    assert torch.equal(entk(model, x, parameters="2.weight"), entk(model, x, parameters="0.weight"))
    assert set(entk_by_layer(model, x, by="parameter", parameters="2.*")) == {"0.weight", "2.bias"}


def test_products_with_blocks_of_the_wrong_height_are_refused():
    product = entk_product(mlp(3, 4, 2), randn(4, 3))
    with pytest.raises(ValueError, match=says("8", "7")):
        product @ randn(7, 2)


def test_products_with_something_else_than_tensors_are_refused():
    with pytest.raises(TypeError, match=says("Tensor", "ndarray|numpy")):
        entk_product(mlp(3, 4, 2), randn(4, 3)) @ randn(8, 2).numpy()


def test_parameters_that_are_neither_names_nor_globs_are_refused():
    with pytest.raises(TypeError, match=says("parameters", "function|lambda")):
        entk(mlp(3, 4, 2), randn(4, 3), parameters=lambda name: True)


def test_something_that_is_no_module_is_refused():
    with pytest.raises(TypeError, match=says("Module", "function")):
        entk(lambda x: x, randn(4, 3))


def test_the_models_own_error_reaches_the_user_as_it_is():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        entk(mlp(3, 4, 2), randn(4, 5))


@pytest.mark.parametrize("function", [entk, entk_full, entk_mean_output])
def test_a_kernel_too_large_for_the_memory_is_refused_with_numbers_and_three_ways_on(function):
    model, x = nn.Linear(1, 4000), torch.ones(1, 1).expand(2_000, 1)
    if function is not entk_full:
        model, x = nn.Linear(1, 1), torch.ones(1, 1).expand(4_000_000, 1)
    with pytest.raises((ValueError, MemoryError)) as refusal:
        function(model, x)
    message = str(refusal.value)
    rows = 8_000_000 if function is entk_full else 4_000_000
    assert re.search(rf"{rows}|{rows:,}|{rows:_}", message), "how many rows"
    assert len(re.findall(r"\d[\d.,_]* ?[KMGTP]i?B", message)) >= 2, "what it needs, and what is free"
    assert "free" in message
    ways = (
        "entk_product",
        "top_spectrum",
        "entk(",
        "outputs=",
        "fewer",
        "parameters=",
        "dtype=",
        "entk_mean_output",
        "jacobian_gram",
    )
    assert sum(way in message for way in ways) >= 3, "three ways on"


def test_a_plan_of_a_kernel_too_large_says_so_without_failing():
    model, x = nn.Linear(1, 4000), torch.ones(1, 1).expand(2_000, 1)
    assert not plan(model, x).fits
