"""Recurrence: one parameter used at every step, often inside one fused call."""

from __future__ import annotations

import torch
from torch import nn, randn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.zoo.entry import Written, entry


@entry("two layers, both directions")
def lstm():
    return Written(
        lambda m, x: m.head(m.body(x)[0][:, -1]),
        body=nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True),
        head=nn.Linear(8, 2),
    ), (randn(4, 4, 3))


@entry("sequence first, no bias, a projection, and the cell state read out; as many positions as examples")
def lstm_with_projection():
    def forward(m, x):
        _, (hidden, cell) = m.body(x.transpose(0, 1))
        return m.head(torch.cat([hidden[-1], cell[-1]], -1))

    return Written(forward, body=nn.LSTM(3, 4, bias=False, proj_size=2), head=nn.Linear(6, 2)), randn(4, 4, 3)


@entry("two layers, both directions")
def gru():
    return Written(
        lambda m, x: m.head(m.body(x)[0].mean(1)),
        body=nn.GRU(3, 3, 2, bidirectional=True, batch_first=True),
        head=nn.Linear(6, 2),
    ), (randn(4, 3, 3))


@entry("an initial state that is learned")
def gru_with_learned_start():
    def forward(m, x):
        _, last = m.body(x, m.start.expand(-1, len(x), -1).contiguous())
        return m.head(last[0])

    return Written(forward, body=nn.GRU(3, 4, batch_first=True), start=randn(1, 1, 4), head=nn.Linear(4, 2)), randn(
        4, 3, 3
    )


@entry("a plain recurrent layer with ReLU")
def rnn():
    return Written(
        lambda m, x: m.head(m.body(x)[1][-1]),
        body=nn.RNN(3, 4, 2, nonlinearity="relu", batch_first=True),
        head=nn.Linear(4, 3),
    ), (randn(4, 3, 3))


@entry("a cell called in a loop")
def lstm_cell():
    def forward(m, x):
        state = None
        for t in range(x.shape[1]):
            state = m.cell(x[:, t], state)
        return m.head(state[0])

    return Written(forward, cell=nn.LSTMCell(3, 4), head=nn.Linear(4, 2)), randn(4, 3, 3)


@entry("GRU and RNN cells feeding each other")
def gru_and_rnn_cells():
    def forward(m, x):
        state = torch.zeros(len(x), 3, dtype=x.dtype)
        for t in range(x.shape[1]):
            state = m.gru(x[:, t], m.rnn(state))
        return state[:, :2]

    return Written(forward, gru=nn.GRUCell(2, 3), rnn=nn.RNNCell(3, 3)), randn(4, 3, 2)


@entry("sequences of different lengths, packed")
def packed_sequences():
    def forward(m, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(m.body(packed)[0], batch_first=True)
        return m.head(states.sum(1))

    return Written(forward, body=nn.LSTM(3, 3, batch_first=True), head=nn.Linear(3, 2)), (
        randn(4, 4, 3),
        torch.tensor([2, 4, 1, 3]),
    )


@entry("recurrence by hand over a raw weight")
def recurrence_by_hand():
    def forward(m, x):
        state = torch.zeros(len(x), 4, dtype=x.dtype)
        for t in range(x.shape[1]):
            state = torch.tanh(state @ m.inner + x[:, t] @ m.outer + m.bias)
        return state @ m.head

    return Written(forward, inner=randn(4, 4) / 2, outer=randn(3, 4), bias=randn(4), head=randn(4, 2)), randn(4, 4, 3)


@entry("a linear scan with a learned decay, as state-space models have")
def linear_scan():
    def forward(m, x):
        decay = torch.sigmoid(m.decay)
        state, states = torch.zeros(len(x), 4, dtype=x.dtype), []
        for t in range(x.shape[1]):
            state = decay * state + m.enter(x[:, t])
            states.append(state)
        return m.leave(torch.stack(states, 1).tanh()).sum(1)

    return Written(forward, decay=randn(4), enter=nn.Linear(3, 4), leave=nn.Linear(4, 2)), randn(4, 3, 3)
