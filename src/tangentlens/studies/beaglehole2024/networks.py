"""The networks of the paper's experiments: bias-free ReLU networks as torch initialises them, and a VGG."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

VGG_11 = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")
"""Configuration A: channels of each 3 x 3 convolution, and where the image is halved."""


def relu_network(
    inputs: int, *, width: int = 256, hidden: int = 2, outputs: int = 1, scale: float = 1.0, seed: int = 0
) -> nn.Sequential:
    """Linear maps without biases, ReLUs between them, torch's uniform initialisation times `scale` in every layer."""
    torch.manual_seed(seed)
    widths = [inputs, *[width] * hidden]
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after, bias=False), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(widths[-1], outputs, bias=False))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(scale)
    return network


def vgg(
    *,
    configuration: Sequence[int | str] = VGG_11,
    narrower: int = 1,
    classifier: int = 4096,
    outputs: int = 10,
    channels: int = 3,
    size: int = 32,
    seed: int = 0,
) -> nn.Sequential:
    """A VGG without batch normalisation, as the released code leaves it, its widths divided by `narrower`.

    Convolutions start from Kaiming's normal distribution over the fan out, linear maps from N(0, 0.01^2).
    """
    torch.manual_seed(seed)
    features: list[nn.Module] = []
    for entry in configuration:
        if isinstance(entry, str):
            features.append(nn.MaxPool2d(2))
            size //= 2
        else:
            features += [nn.Conv2d(channels, entry // narrower, 3, padding=1), nn.ReLU()]
            channels = entry // narrower
    head = (channels * size * size, classifier // narrower, classifier // narrower, outputs)
    maps = [nn.Linear(before, after) for before, after in zip(head, head[1:])]
    network = nn.Sequential(
        *features, nn.Flatten(), maps[0], nn.ReLU(), nn.Dropout(), maps[1], nn.ReLU(), nn.Dropout(), maps[2]
    )
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return network
