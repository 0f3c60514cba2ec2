"""Kernels that can be written down beforehand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tangentlens.kernels import (
    agop,
    entk,
    entk_by_layer,
    entk_full,
    entk_mean_output,
    entk_product,
    features,
    forward_kernel,
    jacobian_gram,
)
from tests.zoo.entry import Written, mlp

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def rows(count: int, width: int) -> torch.Tensor:
    return torch.randn(count, width, dtype=torch.float64)


@pytest.mark.parametrize("bias", [False, True])
def test_entk_of_a_linear_model_is_the_input_gram_plus_one_per_bias(bias):
    model, x = nn.Linear(4, 3, bias=bias).double(), rows(6, 4)
    gram = x @ x.T + float(bias)
    torch.testing.assert_close(entk(model, x), gram, **EXACT)
    full = entk_full(model, x)
    torch.testing.assert_close(full, torch.einsum("nm,cd->ncmd", gram, torch.eye(3, dtype=torch.float64)), **EXACT)
    torch.testing.assert_close(entk_mean_output(model, x), gram / 3, **EXACT)


def test_entk_of_a_linear_model_against_others_is_the_cross_gram():
    model, x, y = nn.Linear(4, 3).double(), rows(6, 4), rows(2, 4)
    torch.testing.assert_close(entk(model, x, y), x @ y.T + 1, **EXACT)


def test_the_heads_block_is_the_feature_gram_times_the_identity():
    model, x = mlp(4, 7, 5, 3).double(), rows(6, 4)
    seen = features(model, x)
    hidden = model[:-1](x).detach()
    torch.testing.assert_close(seen.values, hidden, **EXACT)
    torch.testing.assert_close(seen.outputs, model(x).detach(), **EXACT)
    assert seen.layer == "4"
    torch.testing.assert_close(seen.weight, model[4].weight.detach(), **EXACT)
    torch.testing.assert_close(seen.bias, model[4].bias.detach(), **EXACT)

    gram = hidden @ hidden.T
    torch.testing.assert_close(forward_kernel(model, x, "4"), gram, **EXACT)
    block = entk_full(model, x, parameters="4.weight")
    torch.testing.assert_close(block, torch.einsum("nm,cd->ncmd", gram, torch.eye(3, dtype=torch.float64)), **EXACT)
    by_layer = entk_by_layer(model, x)
    torch.testing.assert_close(by_layer["4"], gram + 1, **EXACT)


def test_the_kernel_of_a_two_layer_relu_net_is_its_textbook_sum():
    model, x = nn.Sequential(nn.Linear(3, 50, bias=False), nn.ReLU(), nn.Linear(50, 1, bias=False)).double(), rows(5, 3)
    z = x @ model[0].weight.detach().T
    slope = (z > 0).double() * model[2].weight.detach()
    true = z.relu() @ z.relu().T + (slope @ slope.T) * (x @ x.T)
    torch.testing.assert_close(entk(model, x), true, **EXACT)


def test_the_kernel_of_a_deep_linear_net_is_a_sum_of_products_of_its_weights():
    model, x = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3))).double(), rows(5, 4)
    first, second, third = (layer.weight.detach() for layer in model)
    true = torch.einsum("nm,cd->ncmd", x @ x.T, third @ second @ second.T @ third.T)
    one, two = x @ first.T, x @ first.T @ second.T
    true += torch.einsum("nm,cd->ncmd", one @ one.T, third @ third.T)
    true += torch.einsum("nm,cd->ncmd", two @ two.T, torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(entk_full(model, x), true, **EXACT)


def test_a_siamese_net_of_equal_inputs_has_no_kernel():
    """Uses of one parameter add up before the Gram: taken apart they would give twice the kernel instead of nothing."""
    model, x = Written(lambda m, x, y: m.net(x) - m.net(y), net=mlp(3, 5, 2)).double(), rows(4, 3)
    assert entk_full(model, (x, x.clone())).abs().max() < 1e-25


def test_an_embedding_read_once_has_the_kernel_of_equal_tokens():
    model, tokens = nn.Embedding(5, 3).double(), torch.tensor([0, 3, 3, 1, 0])
    same = (tokens[:, None] == tokens).double()
    torch.testing.assert_close(entk(model, tokens), same, **EXACT)


def test_the_kernel_scales_with_the_square_of_the_outputs():
    model, x = mlp(3, 6, 2).double(), rows(4, 3)
    torch.testing.assert_close(entk_full(model, x, outputs=lambda raw: 3 * raw), 9 * entk_full(model, x), **EXACT)


def test_the_trace_kernel_is_the_trace_of_the_full_one_and_the_mean_kernel_its_mean():
    model, x = mlp(3, 6, 4).double(), rows(5, 3)
    full = entk_full(model, x)
    torch.testing.assert_close(entk(model, x), torch.einsum("ncmc->nm", full) / 4, **EXACT)
    torch.testing.assert_close(entk_mean_output(model, x), full.mean((1, 3)), **EXACT)


def test_both_sides_of_the_jacobian_have_the_same_spectrum():
    model, x = mlp(2, 3, 2).double(), rows(20, 2)
    kernel = entk_full(model, x).flatten(2, 3).flatten(0, 1)
    dual = jacobian_gram(model, x)
    large, small = torch.linalg.eigvalsh(kernel), torch.linalg.eigvalsh(dual)
    torch.testing.assert_close(large[-len(small) :], small, rtol=1e-9, atol=1e-10)


def test_products_with_unit_vectors_are_the_columns_of_the_kernel():
    model, x = mlp(3, 4, 2).double(), rows(3, 3)
    columns = entk_product(model, x) @ torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(columns, entk_full(model, x).flatten(2, 3).flatten(0, 1), **EXACT)


def test_agop_of_a_linear_model_is_its_feature_matrix_times_the_examples():
    model, x = nn.Linear(4, 3).double(), rows(6, 4)
    weight = model.weight.detach()
    torch.testing.assert_close(agop(model, x, ""), 6 * weight.T @ weight, **EXACT)
