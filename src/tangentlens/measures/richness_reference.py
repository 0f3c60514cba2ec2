"""What D_LR would be without any learning, or with perfect collapse: the levels a value is read against.

D_LR is not comparable across numbers of units and outputs: with nearly as many outputs as units there is little room
below the laziest value, and unequal classes keep even perfect collapse away from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.forward_moments import ForwardMoments, forward_moments
from tangentlens.measures.richness import Convention, Richness, richness


def isotropic_level(rank: int, units: int) -> float:
    """D_LR of equally strong features of which the outputs use `rank`: 1 - sqrt(rank / units).

    >>> isotropic_level(10, 512)
    0.86...
    >>> isotropic_level(97, 128)
    0.13...
    """
    return 1 - math.sqrt(min(1.0, rank / units))


def random_head_levels(
    moments: ForwardMoments, *, outputs: int, draws: int = 8, seed: int = 0, convention: Convention = "robust"
) -> Float[Tensor, "seed"]:
    """D_LR of these features with random linear heads in place of the learned one: what the features alone look like.

    A trained network below this level uses its strongest features on purpose. Cost: draws * units^2 outputs.
    """
    generator = torch.Generator().manual_seed(seed)
    units = moments.width("features")
    levels = []
    for _ in range(draws):
        head = torch.randn(units, outputs, generator=generator, dtype=torch.float64).to(moments.sums.device)
        levels.append(richness(_with_outputs(moments, head), convention, classification=False).distance)
    return torch.tensor(levels, dtype=torch.float64)


def collapse_level(counts: Sequence[int] | Float[Tensor, "label"], convention: Convention = "paper") -> float:
    """D_LR of perfect collapse (features = one-hot labels) at these class counts: 0 only when classes are equal.

    >>> collapse_level([50, 50, 50]) < 1e-12
    True
    """
    shares = torch.as_tensor(counts, dtype=torch.float64)
    shares = shares[shares > 0]
    labels = torch.eye(len(shares), dtype=torch.float64)
    collapsed = forward_moments(labels, labels, labels, weights=shares)
    return richness(collapsed, convention).distance


def sample_caution(rows: int, units: int) -> str | None:
    """Whether there are examples enough: from 4 per unit for an ordering, from 16 for a value.

    The bias falls as 1/n and has opposite signs for lazy and rich networks (measured on two toy spectra, 256 units).
    """
    if rows >= 16 * units:
        return None
    if rows >= 4 * units:
        return f"{rows} examples for {units} units: orderings are safe, a value may be off by more than its spread"
    return (
        f"{rows} examples for {units} units: too few even for orderings; use at least {4 * units}, better {16 * units}"
    )


def imbalance_caution(counts: Sequence[int] | Float[Tensor, "label"], *, above: float = 0.01) -> str | None:
    """Whether unequal classes alone would make perfect collapse look lazy, or there is one class only."""
    if int((torch.as_tensor(counts) > 0).sum()) < 2:
        return "the examples are of a single class: nothing lies between classes; draw them from all"
    level = collapse_level(counts)
    if level <= above:
        return None
    return f"classes are unequal: perfect collapse would read {level:.3f}, not 0; weigh them alike or read against it"


def convention_caution(paper: Richness, robust: Richness, *, above: float = 0.005) -> str | None:
    """Whether the literal reading depends on offsets or near-zero directions of the outputs."""
    if not abs(paper.distance - robust.distance) > above:
        return None
    return (
        f"D_LR is {paper.distance:.4f} read literally and {robust.distance:.4f} without offsets and faint directions "
        "of the outputs; trust the second"
    )


def _with_outputs(moments: ForwardMoments, head: Tensor) -> ForwardMoments:
    """Moments of [1, features @ head, features], from the moments of the features."""
    units = moments.width("features")
    one, mean = moments.total("one", "one"), moments.total("one", "features")
    features = moments.total("features", "features")
    # block by block: one product with the head, where turning the whole matrix would take units^3
    across = features @ head
    rows = [
        torch.cat([one, mean @ head, mean], 1),
        torch.cat([head.T @ mean.T, head.T @ across, across.T], 1),
        torch.cat([mean.T, across, features], 1),
    ]
    return ForwardMoments(torch.cat(rows), (1, head.shape[1], 0, units, 0), moments.rows, moments.resolution)
