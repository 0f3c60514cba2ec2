"""Gradients of several outputs come from one backward pass where that is exact, and one by one everywhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tangentlens.capture import reader
from tangentlens.kernels import entk_full
from tests.reference import tangent
from tests.zoo.entry import Written


class Passed(torch.autograd.Function):
    """The identity, whose backward pass is the one of the test."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, backward: Any) -> Tensor:
        ctx.mine = backward
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.mine(gradient), None


def network(backward: Any) -> tuple[nn.Module, Tensor]:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.last(torch.tanh(Passed.apply(m.first(x), backward)))

    model = Written(forward, first=nn.Linear(3, 4), last=nn.Linear(4, 5)).double()
    return model, torch.randn(6, 3, dtype=torch.float64)


def is_exact(model: nn.Module, x: Tensor) -> bool:
    expected = tangent.full_kernel(tangent.jacobian(model, x))
    return bool((entk_full(model, x) - expected).norm() < 1e-12 * expected.norm())


def test_all_outputs_take_one_backward_pass_and_few_give_the_same():
    calls: list[int] = []
    model, x = network(lambda g: calls.append(1) or g)
    entk_full(model, x)
    together = len(calls)
    calls.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_TOGETHER", 1)
        entk_full(model, x)
    assert len(calls) >= together + 2 * 4 - 3  # two captures of five outputs each; three calls to see that they may
    assert is_exact(model, x)


@pytest.mark.parametrize("outputs_at_once", [1, 2, 3, 4, 5])
def test_any_number_of_outputs_at_once_gives_the_same_kernel(outputs_at_once, monkeypatch):
    model, x = network(lambda g: g)
    monkeypatch.setattr(reader, "_TOGETHER", outputs_at_once * 6 * 5 * 8)  # the largest result is the output, 6 x 5
    assert is_exact(model, x)


def refuses(gradient: Tensor) -> Tensor:
    return torch.from_numpy(gradient.numpy().copy())  # a batch of gradients has no memory of its own


def errs(gradient: Tensor) -> Tensor:
    return 2 * gradient if torch._C._functorch.is_batchedtensor(gradient) else gradient


@pytest.mark.parametrize("backward", [refuses, errs])
def test_a_backward_function_that_does_not_batch_is_called_for_each_output(backward):
    assert is_exact(*network(backward))
