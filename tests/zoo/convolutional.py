"""Convolutions: strides, paddings, dilations, groups, transposes, and images hidden in merged axes."""

from __future__ import annotations

import torch
from torch import nn, randn
from torch.nn import functional

from tests.zoo.entry import Written, entry


@entry("a convolution, pooling, a head")
def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20, 3),
    ), randn(4, 2, 8, 8)


@entry("groups, dilation and stride together")
def cnn_with_groups_and_dilation():
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=2, dilation=2, groups=2),
        nn.Tanh(),
        nn.Conv2d(8, 4, (1, 3), stride=(2, 1), groups=4, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    ), randn(3, 4, 7, 8)


@entry("padding by circling, mirroring and copying")
def convolutions_with_padding_modes():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"),
        nn.Tanh(),
        nn.Conv2d(3, 3, 3, padding=(1, 2), padding_mode="reflect"),
        nn.Tanh(),
        nn.Conv2d(3, 2, 3, padding=1, padding_mode="replicate"),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ), randn(4, 2, 5, 5)


@entry("padding='same' with an even kernel pads one side more")
def convolution_with_same_padding():
    return nn.Sequential(
        nn.Conv2d(2, 3, (4, 2), padding="same", dilation=(1, 2)),
        nn.Tanh(),
        nn.Conv2d(3, 2, 3, padding="valid"),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ), randn(4, 2, 6, 5)


@entry("one-dimensional convolutions, channels as many as examples and positions")
def conv1d_of_equal_sizes():
    return nn.Sequential(
        nn.Conv1d(4, 4, 3, padding=1), nn.Tanh(), nn.Conv1d(4, 4, 1), nn.AdaptiveAvgPool1d(1), nn.Flatten()
    ), randn(4, 4, 4)


@entry("causal, dilated, strided one-dimensional convolutions")
def temporal_convolutions():
    def forward(m, x):
        x = torch.tanh(m.a(functional.pad(x, (2, 0))))
        x = torch.tanh(m.b(functional.pad(x, (4, 0))))
        return m.c(x)[..., -1]

    parts = {"a": nn.Conv1d(2, 3, 3), "b": nn.Conv1d(3, 3, 3, dilation=2), "c": nn.Conv1d(3, 2, 2, stride=2)}
    return Written(forward, **parts), randn(3, 2, 7)


@entry("three-dimensional convolutions with groups")
def conv3d():
    return nn.Sequential(
        nn.Conv3d(2, 4, 2, groups=2),
        nn.Tanh(),
        nn.Conv3d(4, 2, (1, 2, 2), padding=(1, 0, 1)),
        nn.Flatten(2),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
    ), randn(3, 2, 3, 4, 3)


@entry("depthwise, then pointwise")
def depthwise_separable():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, groups=3, padding=1),
        nn.Conv2d(6, 4, 1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    ), randn(4, 3, 5, 5)


@entry("a transposed convolution with stride, groups, output padding and dilation")
def transposed_convolution():
    return nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        nn.Tanh(),
        nn.ConvTranspose2d(6, 2, 2, dilation=2, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ), randn(3, 4, 3, 3)


@entry("transposed convolutions in one and three dimensions")
def transposed_convolutions_1d_and_3d():
    def forward(m, x):
        x = torch.tanh(m.a(x))
        return m.b(x.reshape(len(x), 3, 1, 2, -1)).mean((2, 3, 4))

    parts = {"a": nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1, output_padding=1), "b": nn.ConvTranspose3d(3, 2, 2)}
    return Written(forward, **parts), randn(3, 2, 4)


@entry("a residual block with batch normalisation in eval mode and in-place ReLUs")
def residual_net_in_eval():
    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.one, self.norm_one = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
            self.two, self.norm_two = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            out = self.relu(self.norm_one(self.one(x)))
            out = self.norm_two(self.two(out))
            out += x
            return self.relu(out)

    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(inplace=True),
        Block(3),
        Block(3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(3, 3),
    )
    model(randn(16, 2, 6, 6))  # running statistics that are neither zero nor one
    return model.eval(), randn(4, 2, 6, 6)


@entry("frames merged into the batch axis, then pooled per video")
def frames_merged_into_the_batch():
    def forward(m, x):
        frames = m.conv(x.flatten(0, 1)).tanh().mean((2, 3))
        return m.head(frames.view(len(x), -1, 3).amax(1))

    return Written(forward, conv=nn.Conv2d(2, 3, 3), head=nn.Linear(3, 2)), randn(3, 3, 2, 4, 4)


@entry("the batch hidden in the channels of a grouped convolution")
def examples_as_groups():
    def forward(m, x):
        n = len(x)
        z = functional.conv2d(x.reshape(1, n * 2, 4, 4), m.weight.repeat(n, 1, 1, 1), groups=n)
        return m.head(z.view(n, 3, -1).tanh().mean(-1))

    return Written(forward, weight=randn(3, 2, 3, 3), head=nn.Linear(3, 2)), randn(3, 2, 4, 4)


@entry("a convolution whose weight is standardised before use")
def weight_standardised_convolution():
    def forward(m, x):
        w = m.weight - m.weight.mean((1, 2, 3), keepdim=True)
        w = w / (w.flatten(1).std(1).view(-1, 1, 1, 1) + 1e-3)
        return functional.conv2d(x, w, m.bias, stride=2).relu().mean((2, 3))

    return Written(forward, weight=randn(3, 2, 3, 3), bias=randn(3)), randn(4, 2, 6, 6)


@entry("one kernel used at two dilations")
def convolution_shared_by_two_scales():
    def forward(m, x):
        fine = functional.conv2d(x, m.weight, m.bias, padding=1)
        coarse = functional.conv2d(x, m.weight, padding=2, dilation=2)
        return (fine.tanh() * coarse).mean((2, 3))

    return Written(forward, weight=randn(3, 2, 3, 3) / 3, bias=randn(3)), randn(4, 2, 5, 5)


@entry("locally connected: unfold, then a weight per position")
def locally_connected():
    def forward(m, x):
        patches = functional.unfold(x, 3)  # (N, 2*9, 4)
        return torch.einsum("opl,npl->no", m.weight, patches).tanh() * m.gain

    return Written(forward, weight=randn(3, 18, 4) / 4, gain=randn(3)), randn(4, 2, 4, 4)


@entry("a patch embedding and channels-last memory")
def channels_last():
    model = nn.Sequential(
        nn.Conv2d(3, 5, 2, stride=2), nn.GELU(), nn.Flatten(2), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(5, 2)
    )
    return model.to(memory_format=torch.channels_last), randn(4, 3, 6, 6).to(memory_format=torch.channels_last)
