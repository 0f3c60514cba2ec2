"""Weights that are computed from other parameters before each use."""

from __future__ import annotations

import warnings

import torch
from torch import nn, randn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm

from tests.zoo.entry import entry


@entry("weight normalisation by parametrisation")
def weight_norm_by_parametrisation():
    return nn.Sequential(
        parametrizations.weight_norm(nn.Conv1d(2, 3, 2)),
        nn.Tanh(),
        nn.Flatten(),
        parametrizations.weight_norm(nn.Linear(9, 2)),
    ), randn(4, 2, 4)


@entry("weight normalisation by the older hook, where the weight is no parameter")
def weight_norm_by_hook():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.Sequential(weight_norm(nn.Linear(4, 5)), nn.Tanh(), weight_norm(nn.Linear(5, 2), dim=None)), randn(
            4, 4
        )


@entry("spectral normalisation by parametrisation, in eval mode")
def spectral_norm_by_parametrisation():
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2))
    return model.eval(), randn(4, 4)


@entry("spectral normalisation by the older hook, in eval mode")
def spectral_norm_by_hook():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = nn.Sequential(spectral_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2))
        model.train()(randn(4, 4))
    return model.eval(), randn(4, 4)


@entry("an orthogonal weight")
def orthogonal_weight():
    return nn.Sequential(parametrizations.orthogonal(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2)), randn(4, 4)


class Symmetric(nn.Module):
    def forward(self, raw):
        return raw.triu() + raw.triu(1).transpose(-1, -2)


@entry("a parametrisation of one's own, read through torch's cache")
def cached_parametrisation():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)
            parametrize.register_parametrization(self.layer, "weight", Symmetric())

        def forward(self, x):
            with parametrize.cached():
                return self.layer(torch.tanh(self.layer(x)))

    return Model(), randn(4, 3)
