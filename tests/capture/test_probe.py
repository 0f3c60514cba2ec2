"""Inputs in any form a model takes: each tensor in them is cut along the example, however deep it lies."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn, randn

from tangentlens.kernels import entk_full, plan
from tests.kernels.messages import says
from tests.zoo.entry import Written, mlp


class Batch(NamedTuple):
    x: Tensor
    scale: Tensor
    flag: bool


def nested(kind: str, x: Tensor, scale: Tensor) -> tuple[nn.Module, object]:
    forms = {
        "dict in a tuple": (lambda m, b: m.net(b["x"]) * b["scale"], ({"x": x, "scale": scale},)),
        "list in a dict": (lambda m, x, extra: m.net(x) * extra[0], {"x": x, "extra": [scale, None]}),
        "tuple in a tuple": (lambda m, x, rest: m.net(x) * rest[0][0], (x, ((scale,), "word"))),
        "named tuple": (lambda m, b: m.net(b.x) * b.scale if b.flag else b.x, (Batch(x, scale, True),)),
        "list": (lambda m, x, scale: m.net(x) * scale, [x, scale]),
    }
    forward, inputs = forms[kind]
    return Written(forward, net=mlp(3, 5, 2)).double(), inputs


@pytest.mark.parametrize("kind", ["dict in a tuple", "list in a dict", "tuple in a tuple", "named tuple", "list"])
@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_nested_inputs_are_cut_like_flat_ones(kind, chunk):
    x, scale = randn(4, 3, dtype=torch.float64), randn(4, 1, dtype=torch.float64)
    model, inputs = nested(kind, x, scale)
    flat = Written(lambda m, x, scale: m.net(x) * scale, net=model.net)
    torch.testing.assert_close(entk_full(model, inputs, chunk=chunk), entk_full(flat, (x, scale)))


def test_nested_inputs_reach_the_ladder_too():
    model, inputs = nested("list in a dict", randn(4, 3).double(), randn(4, 1).double())
    solved = Written(
        lambda m, x, extra: m.inner(x=torch.linalg.solve(m.a, x.T).T, extra=extra), inner=model, a=randn(3, 3).double()
    )
    rungs = {row.name: row.rung for row in plan(solved, inputs).rows}
    assert rungs["a"] == "vmap"
    torch.testing.assert_close(entk_full(solved, inputs), entk_full(solved, inputs, chunk=1))


def test_nested_inputs_of_other_lengths_are_named_by_their_place():
    model, state = nn.LSTM(3, 4, batch_first=True), (randn(1, 5, 4), randn(1, 5, 4))
    with pytest.raises(ValueError, match=says(r"inputs\[0\]: 5", r"inputs\[1\]\[0\]: 1", "example")):
        entk_full(model, (randn(5, 2, 3), state), outputs=lambda raw: raw[0][:, -1])


def test_a_tensor_without_axes_is_no_batch():
    with pytest.raises(TypeError, match=says("axes", "length 1")):
        entk_full(mlp(3, 2), torch.tensor(1.0))
