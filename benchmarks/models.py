"""The networks of the workloads, in torch alone: the same file builds them in every peer's environment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def mlp(widths: Sequence[int]) -> nn.Sequential:
    """Fully connected, ReLU between."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn(channels: Sequence[int], outputs: int, image: Sequence[int] = (3, 32, 32)) -> nn.Sequential:
    """3 x 3 convolutions with ReLU, halved by pooling between them, averaged over the picture at the end."""
    layers: list[nn.Module] = []
    before = image[0]
    for index, width in enumerate(channels):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if index < len(channels) - 1 else []
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, outputs))


class Residual(nn.Module):
    """Two 3 x 3 convolutions with BatchNorm, around them the input itself or its 1 x 1 projection."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        same = stride == 1 and before == width
        projection = [nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)]
        self.around: nn.Module = nn.Identity() if same else nn.Sequential(*projection)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


def resnet18(outputs: int = 10, width: int = 64) -> nn.Sequential:
    """ResNet-18 with the stem for small pictures (3 x 3, no pooling); to be used in eval mode."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(4):
        for block in range(2):
            layers.append(Residual(before, width << stage, 2 if stage and not block else 1))
            before = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, outputs))


class Block(nn.Module):
    """Pre-norm attention and MLP, written out: the recipe's vmap does not follow fused attention everywhere."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.merged = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            self.packed(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        x = x + self.merged(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_mlp(x))


class Transformer(nn.Module):
    """A causal transformer read at its last token."""

    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int, outputs: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)[:, -1]))


class Quadratic(nn.Module):
    """f = V (W x / sqrt(2p))^2 / n on two one-hots (Gromov, arXiv 2301.02679v1)."""

    def __init__(self, p: int, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Parameter(torch.randn(width, 2 * p)), nn.Parameter(torch.randn(p, width))

    def forward(self, pairs: Tensor) -> Tensor:
        hidden = (pairs @ self.inner.T / self.inner.shape[1] ** 0.5).square()
        return hidden @ self.outer.T / self.outer.shape[1]
