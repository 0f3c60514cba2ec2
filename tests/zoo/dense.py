"""Linear layers, and every way their rows can be laid out."""

from __future__ import annotations

import warnings

import torch
from torch import nn, randn

from tests.zoo.entry import Written, entry, mlp


@entry("the plain case")
def mlp_tanh():
    return mlp(5, 8, 6, 3), randn(4, 5)


@entry("no bias anywhere")
def linear_without_bias():
    return nn.Sequential(nn.Linear(5, 7, bias=False), nn.ReLU(), nn.Linear(7, 2, bias=False)), randn(4, 5)


@entry("examples, widths and outputs are all four: a layout guessed from sizes is wrong")
def mlp_of_equal_sizes():
    return mlp(4, 4, 4, 4), randn(4, 4)


@entry("examples, positions, widths and outputs are all four")
def positions_of_equal_sizes():
    return Written(lambda m, x: m.b(torch.tanh(m.a(x))).mean(1), a=nn.Linear(4, 4), b=nn.Linear(4, 4)), randn(4, 4, 4)


@entry("rows (example, position) merged, as many positions as examples")
def merged_rows_with_examples_first():
    def forward(m, x):
        rows = torch.tanh(m.a(x.reshape(-1, 4)))
        return m.b(rows).reshape(len(x), -1, 2).pow(2).sum(1)

    return Written(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2)), randn(4, 4, 4)


@entry("rows (position, example) merged, as many positions as examples")
def merged_rows_with_positions_first():
    def forward(m, x):
        rows = torch.tanh(m.a(x.transpose(0, 1).reshape(-1, 4)))
        return m.b(rows).reshape(-1, len(x), 2).pow(2).sum(0)

    return Written(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2)), randn(4, 4, 4)


@entry("examples on the second axis inside the model, as many positions as examples")
def examples_on_the_second_axis():
    def forward(m, x):
        return m.b(torch.tanh(m.a(x.transpose(0, 1)))).cumsum(0).tanh().sum(0)

    return Written(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 2)), randn(4, 4, 3)


@entry("examples on the last axis inside the model")
def examples_on_the_last_axis():
    def forward(m, x):
        z = torch.einsum("oi,bti->otb", m.a, x).tanh()
        return torch.tensordot(m.b, z, dims=([1], [0])).sum(1).T

    return Written(forward, a=randn(4, 4), b=randn(2, 4)), randn(4, 4, 4)


@entry("twice as many rows as examples: row n and row N + n belong together")
def opposite_views_stacked():
    def forward(m, x):
        one, two = m.b(torch.tanh(m.a(torch.cat([x, -2 * x])))).chunk(2)
        return one * two

    return Written(forward, a=nn.Linear(3, 5), b=nn.Linear(5, 2)), randn(4, 3)


@entry("each example repeated next to itself")
def repeated_rows():
    def forward(m, x):
        rows = x.repeat_interleave(3, 0) * torch.tensor([1.0, 0.5, -1.0], dtype=x.dtype).repeat(len(x))[:, None]
        return m.b(torch.tanh(m.a(rows))).view(len(x), 3, 2).prod(1)

    return Written(forward, a=nn.Linear(3, 5), b=nn.Linear(5, 2)), randn(4, 3)


@entry("a linear layer over positions, as mixers have")
def mixer():
    def forward(m, x):
        x = x + m.tokens(x.transpose(1, 2)).transpose(1, 2).tanh()
        return m.head((x + m.channels(x).tanh()).mean(1))

    parts = {"tokens": nn.Linear(3, 3), "channels": nn.Linear(5, 5), "head": nn.Linear(5, 2)}
    return Written(forward, **parts), randn(4, 3, 5)


@entry("every pair of positions is a row")
def pairs_of_positions():
    def forward(m, x):
        pairs = torch.cat([x[:, :, None].expand(-1, -1, 3, -1), x[:, None].expand(-1, 3, -1, -1)], -1)
        return m.head(torch.tanh(m.relation(pairs)).sum((1, 2)))

    return Written(forward, relation=nn.Linear(4, 6), head=nn.Linear(6, 2)), randn(4, 3, 2)


@entry("residual connections")
def residual_mlp():
    def forward(m, x):
        x = m.stem(x)
        for block in m.blocks:
            x = x + block(x)
        return m.head(x)

    blocks = nn.ModuleList([mlp(5, 7, 5) for _ in range(2)])
    return Written(forward, stem=nn.Linear(3, 5), blocks=blocks, head=nn.Linear(5, 3)), randn(4, 3)


@entry("sines with a large frequency")
def siren():
    def forward(m, x):
        for layer in m.layers:
            x = torch.sin(5.0 * layer(x))
        return m.head(x)

    layers = nn.ModuleList([nn.Linear(2, 6), nn.Linear(6, 6)])
    return Written(forward, layers=layers, head=nn.Linear(6, 2)), randn(5, 2) / 2


@entry("a bilinear layer: two inputs, a three-way weight")
def bilinear():
    return Written(lambda m, x, y: m.head(m.pair(x, y).tanh()), pair=nn.Bilinear(3, 4, 5), head=nn.Linear(5, 2)), (
        randn(4, 3),
        randn(4, 4),
    )


@entry("the head alone: its output gradient is the identity")
def a_single_linear_layer():
    return nn.Linear(6, 3), randn(5, 6)


@entry("maxout and sorted features: which row wins depends on the data")
def maxout():
    return Written(
        lambda m, x: m.b(m.a(x).view(-1, 4, 3).amax(-1).sort(-1).values), a=nn.Linear(3, 12), b=nn.Linear(4, 2)
    ), (randn(4, 3))


@entry("a layer of no units, as adaptive softmax makes them: rows without entries")
def layer_of_no_units():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that there is nothing to initialise
        narrow = nn.Sequential(nn.Linear(3, 0), nn.Linear(0, 4))
    parts = {"narrow": narrow, "wide": nn.Linear(3, 4), "head": nn.Linear(4, 2)}
    return Written(lambda m, x: m.head((m.wide(x) + m.narrow(x)).tanh()), **parts), randn(4, 3)
