"""Scales and shifts of normalisations, and other elementwise parameters."""

from __future__ import annotations

import torch
from torch import nn, randn
from torch.nn import functional

from tests.zoo.entry import Written, entry


@entry("group normalisation")
def group_norm():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3),
        nn.GroupNorm(3, 6),
        nn.ReLU(),
        nn.Conv2d(6, 4, 2),
        nn.GroupNorm(1, 4),
        nn.Flatten(2),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
    ), randn(4, 2, 5, 5)


@entry("instance normalisation, with and without running statistics")
def instance_norm():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.InstanceNorm2d(4, affine=True),
        nn.Tanh(),
        nn.Conv2d(4, 3, 2),
        nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(27, 2),
    )
    model(randn(8, 2, 6, 6))
    return model.eval(), randn(4, 2, 6, 6)


@entry("batch normalisation in eval mode on vectors, and in front of everything")
def batch_norm_in_eval():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Linear(6, 3))
    model(randn(16, 4))
    return model.eval(), randn(4, 4)


@entry("batch normalisation over (example, channel, position)")
def batch_norm_over_positions_in_eval():
    model = nn.Sequential(nn.Conv1d(3, 4, 2), nn.BatchNorm1d(4), nn.Tanh(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    model(randn(16, 3, 5))
    return model.eval(), randn(4, 3, 5)


@entry("layer normalisation over one axis and over two")
def layer_norm():
    def forward(m, x):
        return m.head(m.whole(m.one(m.a(x)).tanh()).mean(1))

    parts = {"a": nn.Linear(3, 5), "one": nn.LayerNorm(5), "whole": nn.LayerNorm((4, 5)), "head": nn.Linear(5, 2)}
    return Written(forward, **parts), randn(4, 4, 3)


@entry("RMS normalisation, the module and written out")
def rms_norm():
    def forward(m, x):
        z = m.norm(m.a(x))
        z = z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-5) * (1 + m.gain)
        return m.head(z.tanh())

    return Written(forward, a=nn.Linear(3, 5), norm=nn.RMSNorm(5), gain=randn(5) / 3, head=nn.Linear(5, 2)), randn(4, 3)


@entry("PReLU with one slope and with one per channel")
def prelu():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.PReLU(4), nn.Conv2d(4, 3, 2), nn.PReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ), randn(4, 2, 5, 5)


@entry("gates that are single numbers, through exp, sigmoid and powers")
def learned_scalar_gates():
    def forward(m, x):
        gate = torch.sigmoid(m.gate)
        z = gate * m.a(x) + (1 - gate) * m.b(x).tanh()
        return z * m.temperature.exp() + m.shift**2

    parts = {"gate": randn(()), "temperature": randn(()), "shift": randn(1), "a": nn.Linear(3, 2), "b": nn.Linear(3, 2)}
    return Written(forward, **parts), randn(4, 3)


@entry("layer scale per channel, on sequences and on images")
def layer_scale():
    def forward(m, x):
        x = x + m.scale * m.a(x).tanh()
        image = m.image_scale * x.transpose(1, 2)[..., None]
        return image.tanh().mean((2, 3))

    return Written(forward, scale=randn(3), image_scale=randn(3, 1, 1), a=nn.Linear(3, 3)), randn(4, 3, 3)


@entry("parameters on the right of minus, divide and power")
def parameters_on_the_right():
    def forward(m, x):
        z = (x - m.centre) / m.width.exp()
        z = torch.sub(m.top, z, alpha=2.0) + torch.rsub(z, m.centre)
        return torch.lerp(z, m.top.expand_as(z), m.mix.sigmoid()).pow(2).sum(-1, keepdim=True) / m.last

    parts = {"centre": randn(3), "width": randn(3) / 3, "top": randn(3), "mix": randn(3), "last": randn(2).abs() + 1}
    return Written(forward, **parts), randn(4, 3)


@entry("functional normalisations with raw parameters")
def functional_norms():
    def forward(m, x):
        x = functional.group_norm(x, 2, m.scale, m.shift)
        x = functional.batch_norm(
            x, torch.full_like(m.scale, 0.2).detach(), torch.full_like(m.scale, 1.5).detach(), m.scale, m.shift
        )
        return functional.layer_norm(x, (4,), m.positions).mean(-1)

    return Written(forward, scale=randn(4), shift=randn(4), positions=randn(4)), randn(4, 4, 4)


@entry("weight-free normalisation of features and weights: a cosine head")
def cosine_head():
    def forward(m, x):
        z = functional.normalize(m.a(x).tanh(), dim=-1)
        return m.logit_scale.exp() * z @ functional.normalize(m.prototypes, dim=-1).T

    return Written(forward, a=nn.Linear(3, 5), prototypes=randn(2, 5), logit_scale=randn(())), randn(4, 3)


@entry("clamps, wheres and softmaxes of parameters")
def shaped_parameters():
    def forward(m, x):
        mixed = torch.stack([m.a(x), m.b(x), x[:, :2]], -1) @ torch.softmax(m.mix, 0)
        return torch.where(mixed > 0, mixed * m.slope.clamp(min=0.2), functional.softplus(m.slope) * mixed)

    return Written(forward, a=nn.Linear(3, 2), b=nn.Linear(3, 2), mix=randn(3), slope=randn(2)), randn(4, 3)
