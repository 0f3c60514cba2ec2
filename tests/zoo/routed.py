"""The path depends on the data: masks, branches, experts."""

from __future__ import annotations

import torch
from torch import nn, randn

from tests.zoo.entry import Written, entry, mlp


@entry("a branch taken by the batch's own values would be no function of one example; this one is per example")
def branch_per_example():
    def forward(m, x):
        return torch.stack([m.left(row) if row.sum() > 0 else m.right(row) for row in x])

    return Written(forward, left=mlp(3, 4, 2), right=nn.Linear(3, 2)), randn(5, 3)


@entry("a loop that ends when the data says so")
def loop_until_small():
    def forward(m, x):
        rows = []
        for row in x:
            steps = 0
            while row.norm() > 0.8 and steps < 4:
                row, steps = 0.6 * torch.tanh(m.layer(row)), steps + 1
            rows.append(m.head(row))
        return torch.stack(rows)

    return Written(forward, layer=nn.Linear(3, 3), head=nn.Linear(3, 2)), randn(4, 3)


@entry("rows chosen by a boolean mask, then written back")
def boolean_mask():
    def forward(m, x):
        mask = x[:, 0] > 0
        out = m.base(x)
        out[mask] = out[mask] + m.extra(x[mask]).tanh()
        return m.head(out)

    return Written(forward, base=nn.Linear(3, 4), extra=nn.Linear(3, 4), head=nn.Linear(4, 2)), randn(5, 3)


@entry("ragged sets: only valid positions reach the layer, sums by index_add")
def ragged_sets():
    def forward(m, x, valid):
        owner = torch.arange(len(x))[:, None].expand_as(valid)[valid]
        rows = m.encode(x[valid])
        sums = rows.new_zeros(len(x), rows.shape[1]).index_add(0, owner, rows)
        return m.head(sums.tanh())

    valid = torch.tensor([[True, True, True], [True, False, False], [False, False, False], [True, True, False]])
    return Written(forward, encode=mlp(2, 4, 4), head=nn.Linear(4, 2)), (randn(4, 3, 2), valid)


@entry("a mixture of experts: tokens sent to the best two of three, ragged rows, index_add")
def mixture_of_experts():
    def forward(m, x):
        tokens = x.flatten(0, 1)
        weights, chosen = m.router(tokens).softmax(-1).topk(2)
        out = torch.zeros_like(tokens)
        for e, expert in enumerate(m.experts):
            row, slot = torch.where(chosen == e)
            out.index_add_(0, row, expert(tokens[row]) * weights[row, slot, None])
        return m.head(out.view_as(x).mean(1))

    parts = {
        "router": nn.Linear(4, 3),
        "experts": nn.ModuleList([mlp(4, 5, 4) for _ in range(3)]),
        "head": nn.Linear(4, 2),
    }
    return Written(forward, **parts), randn(4, 3, 4)


@entry("experts stacked in one parameter, one matrix gathered per example")
def stacked_experts():
    def forward(m, x):
        chosen = m.router(x).argmax(-1)
        z = torch.einsum("bi,bio->bo", x, m.experts[chosen]) + m.biases[chosen]
        return z * m.router(x).softmax(-1).gather(1, chosen[:, None])

    return Written(forward, router=nn.Linear(4, 4), experts=randn(4, 4, 2), biases=randn(4, 2)), randn(4, 4)


@entry("a graph: messages along edges of a fixed graph within each example, by index_add on the node axis")
def message_passing():
    source, target = torch.tensor([0, 1, 2, 2, 0]), torch.tensor([1, 2, 0, 1, 2])

    def forward(m, x):
        messages = torch.tanh(m.message(torch.cat([x[:, source], x[:, target]], -1)))
        nodes = torch.zeros(len(x), 3, 4, dtype=x.dtype).index_add(1, target, messages)
        return m.read(nodes).sum(1)

    return Written(forward, message=nn.Linear(4, 4), read=nn.Linear(4, 2)), randn(4, 3, 2)


@entry("top-k pooling and argmax selection of positions")
def selected_positions():
    def forward(m, x):
        z = m.a(x)
        best = m.score(z.tanh())[..., 0].topk(2, dim=1)
        kept = z.gather(1, best.indices[..., None].expand(-1, -1, 4))
        return m.head((kept * best.values[..., None]).sum(1))

    return Written(forward, a=nn.Linear(3, 4), score=nn.Linear(4, 1), head=nn.Linear(4, 2)), randn(4, 4, 3)
