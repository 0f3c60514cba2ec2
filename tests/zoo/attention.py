"""Attention as PyTorch packs it: projections hidden inside composite functions."""

from __future__ import annotations

import torch
from torch import nn, randn
from torch.nn import functional

from tests.zoo.entry import Written, entry


def attended(raw):
    return raw[0].mean(1)


@entry("nn.MultiheadAttention alone", outputs=attended)
def multihead_attention():
    x = randn(4, 3, 4)
    return nn.MultiheadAttention(4, 2, batch_first=True), (x, x, x)


@entry("nn.MultiheadAttention with a causal mask, without weights", outputs=attended)
def masked_multihead_attention():
    x = randn(3, 4, 4)
    mask = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
    model = nn.MultiheadAttention(4, 2, batch_first=True)
    return Written(lambda m, x: m.attend(x, x, x, attn_mask=mask, need_weights=False), attend=model), x


@entry("sequence-first attention inside a batch-first model, as many positions as examples")
def multihead_attention_sequence_first():
    def forward(m, x):
        x = x.transpose(0, 1)
        return m.attend(x, x, x)[0].transpose(0, 1).mean(1)

    return Written(forward, attend=nn.MultiheadAttention(4, 2)), randn(4, 4, 4)


@entry("keys and values of other widths: three separate projections", outputs=attended)
def multihead_attention_of_three_widths():
    model = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True)
    return model, (randn(4, 2, 4), randn(4, 3, 3), randn(4, 3, 5))


@entry("learned extra key and value, an added zero, no biases", outputs=attended)
def multihead_attention_with_bias_kv():
    x = randn(3, 3, 4)
    return nn.MultiheadAttention(4, 1, add_bias_kv=True, add_zero_attn=True, bias=False, batch_first=True), (x, x, x)


@entry("queries, keys and values from different places, some keys padded")
def cross_attention_with_padding():
    def forward(m, x, memory, padding):
        return m.attend(x, memory, memory, key_padding_mask=padding)[0].mean(1)

    padding = torch.tensor([[False, False, False], [False, False, True], [False, True, True], [False, False, False]])
    return Written(forward, attend=nn.MultiheadAttention(4, 2, batch_first=True)), (
        randn(4, 2, 4),
        randn(4, 3, 4),
        padding,
    )


def encoder(batch_first: bool, norm_first: bool, layers: int = 1) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        4, 2, dim_feedforward=6, dropout=0.0, batch_first=batch_first, norm_first=norm_first, activation="gelu"
    )
    return nn.TransformerEncoder(
        layer, layers, norm=nn.LayerNorm(4) if norm_first else None, enable_nested_tensor=False
    )


@entry("a batch-first encoder in eval mode, where the fast path lives")
def transformer_encoder():
    return Written(
        lambda m, x: m.head(m.body(x).mean(1)), body=encoder(True, False), head=nn.Linear(4, 2)
    ).eval(), randn(4, 3, 4)


@entry("two pre-norm layers, in train mode without dropout")
def transformer_encoder_norm_first():
    return Written(lambda m, x: m.head(m.body(x)[:, -1]), body=encoder(True, True, 2), head=nn.Linear(4, 2)), randn(
        3, 3, 4
    )


@entry("a sequence-first encoder, as many positions as examples")
def transformer_encoder_sequence_first():
    def forward(m, x):
        return m.head(m.body(x.transpose(0, 1))[0])

    return Written(forward, body=encoder(False, False), head=nn.Linear(4, 2)).eval(), randn(4, 4, 4)


@entry("padded keys; in eval mode the encoder may use nested tensors")
def transformer_encoder_with_padding():
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=6, dropout=0.1, batch_first=True)

    def forward(m, x, padding):
        return m.head(m.body(x, src_key_padding_mask=padding)[:, 0])

    padding = torch.tensor([[False, False, False], [False, False, True], [False, True, True]])
    return Written(forward, body=nn.TransformerEncoder(layer, 1), head=nn.Linear(4, 2)).eval(), (
        randn(3, 3, 4),
        padding,
    )


@entry("encoder and decoder with a causal mask")
def encoder_decoder():
    def forward(m, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=target.dtype)
        return m.head(m.body(source, target, tgt_mask=mask)[:, -1])

    body = nn.Transformer(4, 2, 1, 1, dim_feedforward=5, dropout=0.0, batch_first=True)
    return Written(forward, body=body, head=nn.Linear(4, 2)), (randn(3, 3, 4), randn(3, 2, 4))


@entry("packed query-key-value weight chunked before use, scaled_dot_product_attention")
def packed_projection_chunked():
    def forward(m, x):
        query, key, value = (x @ w.T for w in m.packed.chunk(3))
        return m.head(functional.scaled_dot_product_attention(query, key, value, is_causal=True).mean(1))

    return Written(forward, packed=randn(12, 4) / 2, head=nn.Linear(4, 2)), randn(4, 3, 4)


@entry("learned queries without a batch axis: the perceiver's latents")
def learned_queries():
    def forward(m, x):
        query = m.queries.expand(len(x), -1, -1)
        z = functional.scaled_dot_product_attention(query, m.key(x), m.value(x))
        return m.head(z.flatten(1))

    parts = {"queries": randn(2, 4), "key": nn.Linear(3, 4), "value": nn.Linear(3, 4), "head": nn.Linear(8, 2)}
    return Written(forward, **parts), randn(4, 3, 3)


@entry("relative position bias gathered from a table and added to the scores")
def relative_position_bias():
    def forward(m, x):
        offsets = torch.arange(3)[:, None] - torch.arange(3) + 2
        scores = m.query(x) @ m.key(x).transpose(1, 2) + m.table[offsets]
        return m.head((scores.softmax(-1) @ x).mean(1))

    parts = {"query": nn.Linear(4, 3), "key": nn.Linear(4, 3), "table": randn(5), "head": nn.Linear(4, 2)}
    return Written(forward, **parts), randn(4, 3, 4)


@entry("a head written with einsums over a three-way weight")
def attention_by_einsum():
    def forward(m, x):
        query, key, value = (torch.einsum("btd,hdk->bhtk", x, w) for w in (m.query, m.key, m.value))
        pattern = torch.einsum("bhtk,bhsk->bhts", query, key).softmax(-1)
        mixed = torch.einsum("bhts,bhsk->bthk", pattern, value)
        return torch.einsum("bthk,hkd->btd", mixed, m.out).add(m.bias).sum(1)[:, :2]

    parts = {name: randn(2, 4, 3) / 2 for name in ("query", "key", "value")}
    return Written(forward, **parts, out=randn(2, 3, 4), bias=randn(4)), randn(4, 3, 4)
