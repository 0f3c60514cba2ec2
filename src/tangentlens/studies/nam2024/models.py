"""The networks of the study, from a few thousand weights up to the paper's, by the same code."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


def fully_connected(inputs: int, widths: Sequence[int], outputs: int) -> nn.Sequential:
    """Linear and ReLU by turns, on flattened inputs; the last linear layer is the head."""
    sizes = [inputs, *widths]
    hidden = [layer for pair in zip(sizes, sizes[1:]) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], outputs))


def scaled(model: nn.Module, scale: float) -> nn.Module:
    """The model with weights of standard deviation scale / sqrt(fan in) and biases of 0: the larger, the lazier."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale / (parameter[0].numel() ** 0.5 * parameter.std()))
            else:
                parameter.zero_()
    return model


class FromTheStart(nn.Module):
    """f - f_0: what a network has learned, without the function it started with; only the network itself is trained.

    With targets scaled down, a network would first of all unlearn f_0, which is as large as ever.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._start = [copy.deepcopy(network)]  # in a list, so that its weights are not the model's

    def forward(self, x: Float[Tensor, "example ..."]) -> Float[Tensor, "example output"]:
        now = self.network(x)
        with torch.no_grad():
            before = self._start[0](x)
        return now - before


def convolutional(channels: int, units: int, outputs: int, *, side: int = 28, colours: int = 1) -> nn.Sequential:
    """Two convolutions with pooling, one hidden layer of `units` features, the head."""
    flat = 2 * channels * (side // 4) ** 2
    return nn.Sequential(
        nn.Conv2d(colours, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(flat, units), nn.ReLU(), nn.Linear(units, outputs),
    )  # fmt: skip


def plain_deep(widths: Sequence[int | None], outputs: int, *, batch_norm: bool, side: int = 32) -> nn.Sequential:
    """A VGG for small pictures: 3 x 3 convolutions, None where pooling halves the picture, the head right behind."""
    layers: list[nn.Module] = []
    channels = 3
    for width in widths:
        if width is None:
            layers += [nn.MaxPool2d(2)] if side > 1 else []
            side = max(1, side // 2)
            continue
        convolution = nn.Conv2d(channels, width, 3, padding=1, bias=not batch_norm)
        # the usual weights of a VGG; torch's own shrink the signal by 2.4 a layer, and without batch norm 13 layers
        # then leave features that are constant to single precision
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        layers += [convolution, nn.BatchNorm2d(width)] if batch_norm else [convolution]
        layers.append(nn.ReLU())
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side**2, outputs))


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm and a way around them."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.around = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Float[Tensor, "example channel row column"]) -> Float[Tensor, "example width height depth"]:
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + self.around(x))


def residual(blocks: Sequence[int], width: int, outputs: int) -> nn.Sequential:
    """A ResNet with a stem for small pictures; blocks (2, 2, 2, 2) of width 64 are ResNet18, whose features are 512."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(ResidualBlock(channels, width * 2**stage, stride))
            channels = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs))


class AdditionTransformer(nn.Module):
    """A transformer that reads `a b =` and answers a + b modulo p at the last place."""

    def __init__(self, modulus: int, width: int, layers: int, heads: int = 4) -> None:
        super().__init__()
        self.modulus = modulus
        self.embedding = nn.Embedding(modulus + 1, width)
        self.places = nn.Parameter(torch.randn(3, width) / width**0.5)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="relu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, modulus, bias=False)

    def forward(self, pairs: Int[Tensor, "example pair"]) -> Float[Tensor, "example output"]:
        equals = torch.full_like(pairs[:, :1], self.modulus)
        states = self.embedding(torch.cat([pairs, equals], 1)) + self.places
        return self.head(self.norm(self.layers(states)[:, -1]))
