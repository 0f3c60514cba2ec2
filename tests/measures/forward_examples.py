"""Feature maps with known answers, shared by the forward-feature tests."""

from __future__ import annotations

import torch
from torch import Tensor

from tangentlens.measures.forward_moments import one_hot


def collapsed(classes: int = 10, copies: int = 20, units: int = 32, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Perfect collapse: every example of a class has the same feature, class features are orthogonal and equal."""
    generator = torch.Generator().manual_seed(seed)
    frame, _ = torch.linalg.qr(torch.randn(units, classes, generator=generator, dtype=torch.float64))
    labels = torch.arange(classes).repeat(copies)
    targets = one_hot(labels, classes)
    return targets @ frame.T, targets, labels


def isotropic(units: int, rank: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Centred features of exactly unit covariance, and outputs that are `rank` of them."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(4 * units, units, generator=generator, dtype=torch.float64)
    features, _ = torch.linalg.qr(values - values.mean(0))
    return features, features[:, :rank]


def lazy_network(
    rows: int = 300, units: int = 24, outputs: int = 4, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unequal features with an offset, a random head, unrelated labels: features, outputs, one-hot, labels."""
    generator = torch.Generator().manual_seed(seed)
    scales = torch.arange(1, units + 1, dtype=torch.float64) ** -0.7
    features = torch.randn(rows, units, generator=generator, dtype=torch.float64) * scales + 0.3
    head = torch.randn(units, outputs, generator=generator, dtype=torch.float64)
    labels = torch.randint(outputs, (rows,), generator=generator)
    return features, features @ head, one_hot(labels, outputs), labels
