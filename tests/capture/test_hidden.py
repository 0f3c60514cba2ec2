"""Parameters that a backward pass of its own keeps out of the graph: made visible, or refused by name, never zero."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint as checkpointing
from torch import nn, randn
from torch.utils.checkpoint import checkpoint

from tangentlens.kernels import entk, entk_by_layer, entk_full, plan
from tests.capture.undisturbed_state import differences, state
from tests.kernels.messages import says
from tests.zoo.entry import Written, mlp


def checkpointed(reentrant: bool, frozen: bool) -> nn.Module:
    def forward(m, x):
        z = m.embed(x)
        z = z if z.requires_grad else z.requires_grad_()
        return m.head(checkpoint(m.body, z, use_reentrant=reentrant))

    torch.manual_seed(0)
    model = Written(forward, embed=nn.Linear(3, 4), body=mlp(4, 5, 4), head=nn.Linear(4, 2)).double()
    model.embed.requires_grad_(not frozen)
    return model


@pytest.mark.parametrize("frozen", [False, True])
def test_reentrant_checkpointing_hides_no_parameter(frozen):
    inputs = randn(4, 3, dtype=torch.float64)
    model, plain = checkpointed(True, frozen), checkpointed(False, frozen)
    torch.testing.assert_close(entk_full(model, inputs), entk_full(plain, inputs), rtol=1e-12, atol=0)
    assert {row.rung for row in plan(model, inputs).rows} == {"rule"}
    assert checkpointing.CheckpointFunction.__name__ == "CheckpointFunction", "torch's own is back in its place"


class RunsAModule(torch.autograd.Function):
    """Differentiates the module by itself: its parameters are no inputs of this function."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        ctx.save_for_backward(x)
        return module(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            torch.autograd.backward(ctx.module(x), gradient)
        return x.grad, None


def hiding() -> nn.Module:
    return Written(
        lambda m, x: m.head(RunsAModule.apply(m.first(x), m.inside)),
        first=nn.Linear(3, 4), inside=mlp(4, 5, 4), head=nn.Linear(4, 2),
    )  # fmt: skip


@pytest.mark.parametrize("function", [entk_full, entk, entk_by_layer, plan])
def test_a_module_inside_a_custom_function_is_refused_by_its_parameters_names(function):
    with pytest.raises(ValueError, match=says(r"inside\.0\.weight", "RunsAModuleBackward", "parameters=")):
        function(hiding(), randn(4, 3))


def test_what_a_custom_function_does_on_the_side_leaves_no_trace():
    model, inputs, told = hiding(), randn(4, 3), []
    model.inside[0].weight.grad = torch.ones_like(model.inside[0].weight)
    model.inside[0].weight.register_post_accumulate_grad_hook(told.append)
    before = state(model, inputs)
    with pytest.raises(ValueError):
        entk(model, inputs)
    found = entk_full(model, inputs, parameters=["first.*", "head.*"])
    assert differences(before, state(model, inputs)) == [] and told == []
    assert torch.isfinite(found).all() and model.inside[0].bias.grad is None


def test_a_parameter_put_in_another_place_by_forward_is_put_back():
    def forward(m, x):
        m.net[0].weight.data = m.net[0].weight.data / m.net[0].weight.data.norm()
        return m.net(x)

    model, inputs = Written(forward, net=mlp(3, 4, 2)), randn(4, 3)
    before = state(model, inputs)
    entk(model, inputs)
    assert differences(before, state(model, inputs)) == []
