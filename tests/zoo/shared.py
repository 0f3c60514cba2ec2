"""One parameter, several uses: cross terms between uses belong to the kernel."""

from __future__ import annotations

import torch
from torch import nn, randint, randn
from torch.nn import functional

from tests.zoo.entry import Written, entry, mlp


@entry("one net called twice, the difference of its outputs")
def siamese():
    return Written(lambda m, x, y: m.net(x) - m.net(y), net=mlp(3, 5, 2)), (randn(4, 3), randn(4, 3))


@entry("one convolutional net called twice, distance of its outputs")
def siamese_convolutions():
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, 3))
    return Written(lambda m, x, y: (m.net(x) - m.net(y)).pow(2), net=net), (randn(4, 2, 4, 4), randn(4, 2, 4, 4))


@entry("an autoencoder whose decoder is the encoder's transpose")
def tied_autoencoder():
    def forward(m, x):
        return functional.linear(torch.tanh(functional.linear(x, m.weight, m.enter)), m.weight.t(), m.leave)

    return Written(forward, weight=randn(3, 4), enter=randn(3), leave=randn(4)), randn(4, 4)


@entry("ReLU(W^T W x + b), the toy model of superposition")
def superposition():
    return Written(
        lambda m, x: functional.relu(x @ m.weight.T @ m.weight + m.bias), weight=randn(2, 4), bias=randn(4)
    ), randn(4, 4)


@entry("the same layer applied again and again, as many times as examples")
def weight_shared_in_depth():
    def forward(m, x):
        for _ in range(4):
            x = torch.tanh(m.layer(x))
        return m.head(x)

    return Written(forward, layer=nn.Linear(4, 4), head=nn.Linear(4, 2)), randn(4, 4)


@entry("embedding and head are one parameter")
def tied_embedding_and_head():
    def forward(m, tokens):
        return functional.linear(m.body(m.embedding(tokens)).mean(1), m.embedding.weight)

    return Written(forward, embedding=nn.Embedding(6, 4), body=mlp(4, 5, 4)), randint(0, 6, (4, 3))


@entry("two modules hold one parameter, under two names")
def parameter_under_two_names():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    model[2].weight = model[0].weight
    return model, randn(4, 4)


@entry("one module reachable under two names, both called")
def module_under_two_names():
    def forward(m, x):
        return m.head(torch.tanh(m.second(torch.tanh(m.first(x)))))

    layer = nn.Linear(4, 4)
    return Written(forward, first=layer, second=layer, head=nn.Linear(4, 2)), randn(4, 4)


@entry("one bias added in two shapes, one weight in a matrix product and elementwise")
def parameter_in_two_roles():
    def forward(m, x):
        z = x @ m.weight + m.bias
        z = torch.tanh(z * m.weight.diagonal()) + m.bias[:, None].sum()
        return z * m.bias

    return Written(forward, weight=randn(3, 3), bias=randn(3)), randn(4, 3)


@entry("one weight used on the left and on the right, and once behind a stop-gradient")
def weight_with_a_stop_gradient():
    def forward(m, x):
        moving = functional.linear(x, m.weight)
        still = functional.linear(x, m.weight.detach())
        with torch.no_grad():
            scale = functional.linear(x, m.weight).abs().mean(-1, keepdim=True)
        return (moving * still / (1 + scale)).tanh() @ m.weight

    return Written(forward, weight=randn(3, 3)), randn(4, 3)


@entry("triplets through one net, ragged numbers of uses per parameter")
def nested_sharing():
    def forward(m, x):
        once = m.inner(x)
        return m.outer(once + m.inner(once).sin()) + m.inner(x * once)[:, :2]

    return Written(forward, inner=nn.Linear(3, 3), outer=nn.Linear(3, 2)), randn(4, 3)
