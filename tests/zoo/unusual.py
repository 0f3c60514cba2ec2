"""What hides an operation from an observer, or makes a parameter special."""

from __future__ import annotations

import warnings
from copy import deepcopy

import torch
from torch import nn, randn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.zoo.entry import Written, entry, mlp


@entry("a parameter that is never used")
def unused_parameter():
    return Written(lambda m, x: m.net(x), net=mlp(3, 4, 2), idle=randn(3), spare=nn.Linear(2, 2)), randn(4, 3)


@entry("a parameter that only some examples use")
def parameter_used_by_some():
    def forward(m, x):
        return torch.stack(
            [m.net(row) * m.gain if n_positive else m.net(row) for row, n_positive in zip(x, x[:, 0] > 0, strict=True)]
        )

    return Written(forward, net=mlp(3, 4, 2), gain=randn(2)), randn(4, 3)


@entry("a frozen layer below and a frozen bias")
def frozen_parameters():
    model = mlp(3, 5, 4, 2)
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model, randn(4, 3)


@entry("a frozen transformer below a trained head: nothing below needs a gradient")
def frozen_encoder():
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=5, batch_first=True).requires_grad_(False)
    return Written(
        lambda m, x: m.head(m.body(x)[:, 0]), body=nn.TransformerEncoder(layer, 1), head=nn.Linear(4, 2)
    ).eval(), randn(4, 3, 4)


@entry("activations recomputed in the backward pass")
def checkpointed():
    def forward(m, x):
        for block in m.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return m.head(x)

    return Written(forward, blocks=nn.ModuleList([mlp(3, 4, 3), mlp(3, 4, 3)]), head=nn.Linear(3, 2)), randn(4, 3)


class Scaled(torch.autograd.Function):
    """A linear map with a backward pass of its own: what happens inside forward must not be captured."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return functional.linear(x, weight) * 2

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return 2 * gradient @ weight, 2 * gradient.flatten(0, -2).T @ x.flatten(0, -2)


@entry("a layer that is a custom autograd function")
def custom_function():
    return Written(
        lambda m, x: m.head(Scaled.apply(x, m.weight).tanh()), weight=randn(4, 3), head=nn.Linear(4, 2)
    ), randn(4, 3)


class StraightThrough(torch.autograd.Function):
    """Rounds forward, passes the gradient on: forward and backward disagree on purpose."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@entry("binary weights by a straight-through estimator")
def straight_through():
    def forward(m, x):
        return m.head(functional.linear(x, StraightThrough.apply(m.weight)).tanh())

    return Written(forward, weight=randn(4, 3), head=nn.Linear(4, 2)), randn(4, 3)


@entry("forces: the output is itself a gradient by the input")
def gradient_inside_forward():
    def forward(m, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = m.energy(x).sum()
            return -torch.autograd.grad(energy, x, create_graph=True)[0]

    return Written(forward, energy=mlp(3, 5, 4, 1)), randn(4, 3)


@entry("a directional derivative inside the model")
def jvp_inside_forward():
    def forward(m, x):
        value, slope = torch.func.jvp(m.net, (x,), (torch.ones_like(x),))
        return value * slope

    return Written(forward, net=mlp(3, 5, 2)), randn(4, 3)


@entry("an activation saved on the module and read by another layer")
def value_passed_behind_the_scenes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)
            self.kept = None
            self.one.register_forward_hook(self.keep)

        def keep(self, module, args, output):
            self.kept = output

        def forward(self, x):
            self.one(x)
            z = self.two(x) * self.kept
            self.kept = None
            return self.head(z)

    return Model(), randn(4, 3)


@entry("a user's hook changes a layer's output")
def hook_that_changes_the_output():
    model = mlp(3, 5, 2)
    model[0].register_forward_hook(lambda module, args, output: output * 1.5 + 0.1)
    model[2].register_forward_pre_hook(lambda module, args: (args[0].sin(),))
    return model, randn(4, 3)


@entry("an input that asks for its own gradient")
def input_that_requires_grad():
    return mlp(3, 5, 2), randn(4, 3).requires_grad_()


@entry("dropout that is there but asleep")
def sleeping_dropout():
    return nn.Sequential(
        nn.Linear(3, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 4), nn.AlphaDropout(0.1), nn.Linear(4, 2)
    ).eval(), randn(4, 3)


@entry("the layer's input does not depend on the example: only a later one does")
def constant_branch():
    def forward(m, x):
        style = m.style(m.code)
        return m.head(torch.tanh(m.a(x)) * style + style)

    return Written(forward, code=randn(1, 2), style=nn.Linear(2, 4), a=nn.Linear(3, 4), head=nn.Linear(4, 2)), randn(
        4, 3
    )


@entry("an output that is a constant for one of its units, and a parameter as an output")
def constant_outputs():
    def forward(m, x):
        return torch.cat([m.net(x), torch.ones_like(x[:, :1]), m.offset.expand(len(x), 1)], 1)

    return Written(forward, net=mlp(3, 4, 1), offset=randn(1)), randn(4, 3)


@entry("a clone, a cast and a contiguous copy of a weight before its use")
def copied_weights():
    def forward(m, x):
        z = functional.linear(x, m.a.clone(), m.bias.to(x.dtype).contiguous())
        return torch.tanh(z) @ m.b.t().contiguous().view(-1).view(4, 2).double().to(x.dtype)

    return Written(forward, a=randn(4, 3), bias=randn(4), b=randn(2, 4)), randn(4, 3)


@entry("an equilibrium: an implicit layer whose gradient is found by a tensor hook")
def implicit_layer():
    def forward(m, x):
        state = torch.zeros(len(x), 3, dtype=x.dtype)
        with torch.no_grad():
            for _ in range(30):
                state = torch.tanh(0.2 * m.inner(state) + x)
        return m.head(torch.tanh(0.2 * m.inner(state) + x))

    return Written(forward, inner=nn.Linear(3, 3), head=nn.Linear(3, 2)), randn(4, 3)


@entry("a buffer that counts the calls and another that keeps the last activation")
def counting_buffers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(3, 4, 2)
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x):
            self.calls += 1
            out = self.net(x)
            self.mean = 0.9 * self.mean + 0.1 * out.detach().mean(0)
            return out

    return Model(), randn(4, 3)


@entry("random numbers drawn and thrown away")
def idle_randomness():
    def forward(m, x):
        return m.net(x + 0 * torch.rand_like(x) + 0 * functional.dropout(x))

    return Written(forward, net=mlp(3, 4, 2)), randn(4, 3)


@entry("a scripted module inside: no function of Python's is called")
def scripted_module():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        inner = torch.jit.script(mlp(3, 4, 3))
    return Written(lambda m, x: m.head(m.inner(x).tanh()), inner=inner, head=nn.Linear(3, 2)), randn(4, 3)


@entry("a clamp written into the weight by forward itself")
def weight_clamped_in_forward():
    def forward(m, x):
        with torch.no_grad():
            m.net[0].weight.clamp_(-0.2, 0.2)
        return m.net(x)

    return Written(forward, net=mlp(3, 5, 2)), randn(4, 3)


@entry("a table whose rows the functional lookup shortens in place")
def functional_embedding_with_max_norm():
    def forward(m, ids):
        return m.head(functional.embedding(ids, m.table, max_norm=0.5).flatten(1))

    return Written(forward, table=randn(7, 4), head=nn.Linear(12, 2)), torch.randint(7, (4, 3))


@entry("statistics of the input taken by numpy")
def numpy_on_the_input():
    def forward(m, x):
        return m.net(x) * torch.as_tensor(x.numpy().mean(1, keepdims=True))

    return Written(forward, net=mlp(3, 5, 2)), randn(4, 3)


@entry("the input is copied deeply before use")
def deep_copy_of_the_input():
    return Written(lambda m, x: m.net(deepcopy(x)), net=mlp(3, 5, 2)), randn(4, 3)
