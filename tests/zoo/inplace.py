"""In-place operations after, before and on views of what a parameter produced."""

from __future__ import annotations

import torch
from torch import nn, randn
from torch.nn import functional

from tests.zoo.entry import Written, entry


@entry("ReLU(inplace=True) after every layer")
def inplace_relu_mlp():
    return nn.Sequential(
        nn.Linear(4, 7), nn.ReLU(inplace=True), nn.Linear(7, 6), nn.LeakyReLU(0.1, inplace=True), nn.Linear(6, 3)
    ), randn(4, 4)


@entry("in-place ReLU on the very output")
def inplace_relu_on_the_output():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.ReLU(inplace=True)), randn(4, 4)


@entry("an in-place sum onto a layer's output, in both directions")
def inplace_residual_sum():
    def forward(m, x):
        z = m.a(x)
        z += x
        y = m.b(z.tanh())
        x = z + 0
        x += y
        x *= 0.5
        return m.head(x)

    return Written(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4), head=nn.Linear(4, 2)), randn(4, 4)


@entry("in-place change of a slice of a layer's output")
def inplace_on_a_view():
    def forward(m, x):
        z = m.a(x)
        z[:, :3].neg_().masked_fill_(x[:, :3] > 0.5, 0.1)
        z[:, 3:].mul_(2.0).add_(x[:, :3])
        z.narrow(1, 2, 2).relu_()
        return m.head(z)

    return Written(forward, a=nn.Linear(4, 6), head=nn.Linear(6, 2)), randn(4, 4)


@entry("masked and indexed assignment into a layer's output")
def inplace_masking():
    def forward(m, x):
        z = m.a(x)
        z[z < -0.3] = 0.25
        z.masked_fill_(x[:, :1] > 1.0, 0.5)
        z[:, 0] = m.fill
        return m.head(z.tanh())

    return Written(forward, a=nn.Linear(4, 5), fill=randn(()), head=nn.Linear(5, 2)), randn(4, 4)


@entry("results copied into a buffer made beforehand")
def filled_buffer():
    def forward(m, x):
        buffer = x.new_zeros(len(x), 3, 4)
        buffer[:, 0] = m.a(x)
        buffer[:, 1] = m.row
        buffer[:, 2].copy_(m.b(buffer[:, 0].tanh()))
        return m.head(buffer.tanh().flatten(1))

    return Written(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 4), row=randn(4), head=nn.Linear(12, 2)), randn(4, 3)


@entry("parameters added and multiplied in place")
def inplace_affine():
    def forward(m, x):
        z = x @ m.weight
        z.mul_(m.gain).add_(m.bias, alpha=2.0).addcmul_(m.gain, m.bias, value=0.5).tanh_()
        return z @ m.head

    return Written(forward, weight=randn(4, 5), gain=randn(5), bias=randn(5), head=randn(5, 2)), randn(4, 4)


@entry("in-place ReLU shared by a branch that reads the layer's output first")
def inplace_after_another_reader():
    def forward(m, x):
        z = m.a(x)
        before = 2 * z
        functional.relu_(z)
        return m.head(before + z)

    return Written(forward, a=nn.Linear(4, 5), head=nn.Linear(5, 2)), randn(4, 4)


@entry("a sum accumulated in place over positions")
def inplace_accumulation():
    def forward(m, x):
        state = torch.zeros(len(x), 4, dtype=x.dtype)
        for t in range(x.shape[1]):
            state += torch.tanh(m.step(x[:, t]))
            state.clamp_(-1.2, 1.2)
        return m.head(state)

    return Written(forward, step=nn.Linear(3, 4), head=nn.Linear(4, 2)), randn(4, 3, 3)


@entry("the input itself is changed in place")
def inplace_on_the_input():
    def forward(m, x):
        x.mul_(2).clamp_(max=1.5)
        return m.net(x)

    return Written(
        forward, net=nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    ), randn(4, 3)
