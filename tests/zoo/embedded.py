"""Tables: embeddings, bags, positions and tokens that carry no example axis."""

from __future__ import annotations

import torch
from torch import nn, randint, randn
from torch.nn import functional

from tests.zoo.entry import Written, entry, mlp


@entry("an embedding, tokens repeated within and across examples")
def embedding():
    return Written(
        lambda m, t: m.head(m.table(t).tanh().mean(1)), table=nn.Embedding(4, 3), head=nn.Linear(3, 2)
    ), randint(0, 4, (4, 4))


@entry("padded tokens give no gradient")
def embedding_with_padding():
    tokens = torch.tensor([[1, 2, 0], [3, 0, 0], [1, 1, 4], [0, 0, 0]])
    return Written(
        lambda m, t: m.head(m.table(t).sum(1).tanh()), table=nn.Embedding(5, 3, padding_idx=0), head=nn.Linear(3, 2)
    ), tokens


@entry("a table whose gradient comes as a sparse tensor")
def embedding_with_sparse_gradients():
    return Written(
        lambda m, t: m.head(m.table(t).sum(1).tanh()), table=nn.Embedding(5, 3, sparse=True), head=nn.Linear(3, 2)
    ), (randint(0, 5, (4, 3)))


@entry("one token per example: the table's row is the feature")
def embedding_of_one_token():
    return nn.Sequential(nn.Embedding(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)), randint(0, 6, (5,))


@entry("a bag of tokens, summed with weights and averaged")
def embedding_bag():
    def forward(m, tokens, weights):
        return m.head(m.total(tokens, per_sample_weights=weights) + m.average(tokens).tanh())

    parts = {"total": nn.EmbeddingBag(6, 4, mode="sum"), "average": nn.EmbeddingBag(6, 4, mode="mean", padding_idx=1)}
    return Written(forward, **parts, head=nn.Linear(4, 2)), (randint(0, 6, (4, 3)), randn(4, 3))


@entry("the largest entry over a bag of tokens")
def embedding_bag_of_maxima():
    return Written(lambda m, t: m.head(m.bag(t)), bag=nn.EmbeddingBag(6, 4, mode="max"), head=nn.Linear(4, 2)), randint(
        0, 6, (4, 3)
    )


@entry("bags given by offsets: as many rows as tokens")
def embedding_bag_with_offsets():
    def forward(m, tokens):
        offsets = torch.arange(0, tokens.numel(), tokens.shape[1])
        return m.head(functional.embedding_bag(tokens.flatten(), m.table, offsets, mode="mean").tanh())

    return Written(forward, table=randn(6, 4), head=nn.Linear(4, 2)), randint(0, 6, (4, 3))


@entry("positions by an embedding without an example axis, broadcast in a sum; as many positions as examples")
def broadcast_position_embedding():
    def forward(m, tokens):
        positions = torch.arange(tokens.shape[1])[None]
        return m.body(m.tokens(tokens) + m.positions(positions)).mean(1)

    return Written(forward, tokens=nn.Embedding(5, 4), positions=nn.Embedding(4, 4), body=mlp(4, 4, 2)), randint(
        0, 5, (4, 4)
    )


@entry("positions as a parameter, and a class token expanded and concatenated")
def class_token():
    def forward(m, x):
        z = torch.cat([m.token.expand(len(x), -1, -1), m.patches(x)], 1) + m.positions[:, : x.shape[1] + 1]
        return m.head(torch.tanh(m.mix(z)).mean(1) + z[:, 0])

    parts = {"token": randn(1, 1, 4), "positions": randn(1, 5, 4), "patches": nn.Linear(3, 4), "mix": nn.Linear(4, 4)}
    return Written(forward, **parts, head=nn.Linear(4, 2)), randn(4, 3, 3)


@entry("tables read by indexing, index_select, gather and one-hot products")
def tables_read_by_indexing():
    def forward(m, tokens):
        rows = m.table[tokens]
        chosen = torch.index_select(m.table, 0, tokens[:, 0])
        gathered = torch.gather(m.bias.expand(len(tokens), -1), 1, tokens)
        hot = functional.one_hot(tokens, 5).to(m.table.dtype) @ m.other
        return (rows * gathered[..., None] + hot).tanh().sum(1) * chosen

    return Written(forward, table=randn(5, 2), bias=randn(5), other=randn(5, 2)), randint(0, 5, (4, 3))


@entry("masked tokens replaced by a learned vector")
def mask_token():
    def forward(m, x, hidden):
        return m.body(torch.where(hidden[..., None], m.token, x)).sum(1)

    return Written(forward, token=randn(3), body=mlp(3, 4, 2)), (randn(4, 3, 3), torch.rand(4, 3) > 0.5)


@entry("two tables of one size indexed by two columns: the modular-addition net")
def modular_addition():
    def forward(m, pairs):
        left, right = m.left(pairs[:, 0]), m.right(pairs[:, 1])
        return m.head((left + right).pow(2))

    parts = {"left": nn.Embedding(5, 6), "right": nn.Embedding(5, 6), "head": nn.Linear(6, 5, bias=False)}
    return Written(forward, **parts), randint(0, 5, (4, 2))
