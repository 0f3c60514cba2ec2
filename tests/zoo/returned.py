"""What a model takes and gives back: shapes of outputs, tuples, dictionaries, objects."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn, randn

from tests.zoo.entry import Written, entry, mlp


@entry("one number per example, without an output axis")
def output_without_an_axis():
    return Written(lambda m, x: m.net(x).squeeze(-1), net=mlp(3, 4, 1)), randn(4, 3)


@entry("a sequence of outputs, flattened by us; positions as many as examples")
def output_with_positions():
    return mlp(3, 4, 2), randn(4, 4, 3)


@entry("an image of outputs")
def output_that_is_an_image():
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 2, 1)), randn(3, 2, 3, 2)


@entry("a dictionary in, an object out", outputs=lambda raw: raw.prediction)
def dictionary_in_object_out():
    def forward(m, *, left, right, scale=1.0):
        return SimpleNamespace(prediction=m.net(left * right) * scale, loss=None)

    return Written(forward, net=mlp(3, 4, 2)), {"left": randn(4, 3), "right": randn(4, 3), "scale": 2.0}


@entry("a tuple out, one of several heads chosen", outputs=lambda raw: raw[1])
def one_head_of_several():
    def forward(m, x):
        z = torch.tanh(m.trunk(x))
        return m.first(z), m.second(z)

    return Written(forward, trunk=nn.Linear(3, 4), first=nn.Linear(4, 3), second=nn.Linear(4, 2)), randn(4, 3)


@entry("outputs that multiply and select what the model gives", outputs=lambda raw: raw.log_softmax(-1)[:, [0, 2]] * 3)
def outputs_of_log_probabilities():
    return mlp(3, 5, 4), randn(4, 3)


@entry("the margin between two outputs: one number per example", outputs=lambda raw: raw[:, 0] - raw[:, 1])
def margin():
    return mlp(3, 5, 2), randn(4, 3)


@entry("an optional input left out")
def optional_input():
    return Written(lambda m, x, mask: m.net(x if mask is None else x * mask), net=mlp(3, 4, 2)), (randn(4, 3), None)
