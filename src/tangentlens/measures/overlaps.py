"""How much of a feature space a block of modes captures, without choosing a basis in either."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Overlap:
    """The share of a feature space that lies in the span of a block of modes, with what chance would give.

    `percent` = 100 * sum(cosines^2) / (dimension of the feature space); `chance_percent` is its mean for a random block
    of the same dimension, 100 * (dimension of the block) / (rows). The null_ fields come from permuting the rows of the
    block, and are NaN when no permutation was asked for.
    """

    percent: float
    cosines: Float[Tensor, "angle"]
    feature_dimension: int
    block_dimension: int
    chance_percent: float
    null_percent: float = math.nan
    null_highest_percent: float = math.nan
    null_probability: float = math.nan

    @property
    def angles(self) -> Float[Tensor, "angle"]:
        """Principal angles in degrees, smallest first."""
        return torch.rad2deg(torch.arccos(self.cosines.clamp(max=1)))


def subspace_overlap(
    modes: Float[Tensor, "row mode"],
    features: Float[Tensor, "row feature"],
    *,
    centre: bool = True,
    permutations: int = 0,
    seed: int = 0,
) -> Overlap:
    """Overlap of two column spans: sum of squared cosines of their principal angles (lin2025 v4).

    Feature columns are centred (as in the paper) unless told otherwise; modes never are. Columns that depend on others
    count once. The null keeps both spans' dimensions and destroys what ties rows to features.
    """
    block = orthonormal_span(modes)
    space = orthonormal_span(features.to(block) - features.to(block).mean(0) if centre else features.to(block))
    if space.shape[1] == 0:
        raise ValueError("the features span nothing (all zero, or constant and centred); pass features that vary")
    if block.shape[1] == 0:
        raise ValueError("the modes span nothing (none, or all zero); pass a block of at least one mode")
    if block.shape[0] != space.shape[0]:
        raise ValueError(f"modes have {block.shape[0]} rows and features {space.shape[0]}; both need the same rows")
    cosines = torch.linalg.svdvals(space.T @ block)
    share = _captured(space, block)
    nulls = _permuted_shares(space, block, permutations, seed)
    return Overlap(
        percent=100 * share,
        cosines=cosines,
        feature_dimension=space.shape[1],
        block_dimension=block.shape[1],
        chance_percent=100 * block.shape[1] / block.shape[0],
        null_percent=100 * float(nulls.mean()) if permutations else math.nan,
        null_highest_percent=100 * float(nulls.max()) if permutations else math.nan,
        null_probability=(1 + int((nulls >= share).sum())) / (1 + permutations) if permutations else math.nan,
    )


def orthonormal_span(columns: Float[Tensor, "row column"]) -> Float[Tensor, "row direction"]:
    """An orthonormal basis of the columns' span, in float64, leaving out directions below rounding."""
    columns = columns.detach().to(torch.float64)
    if columns.ndim != 2 or not bool(torch.isfinite(columns).all()):
        got = f"shape {tuple(columns.shape)}" if columns.ndim != 2 else "NaN or infinity in it"
        raise ValueError(
            f"a span is that of a finite matrix (row, column), got {got}; one vector v goes in as v[:, None]"
        )
    directions, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
    cut = max(columns.shape) * torch.finfo(torch.float64).eps * (sizes[0] if len(sizes) else 0.0)
    return directions[:, sizes > cut]


def _captured(space: Float[Tensor, "row direction"], block: Float[Tensor, "row mode"]) -> float:
    return float((space.T @ block).square().sum() / space.shape[1])


def _permuted_shares(
    space: Float[Tensor, "row direction"], block: Float[Tensor, "row mode"], permutations: int, seed: int
) -> Float[Tensor, "permutation"]:
    """The share captured after shuffling the rows of the block, `permutations` times."""
    generator = torch.Generator().manual_seed(seed)
    orders = (torch.randperm(block.shape[0], generator=generator) for _ in range(permutations))
    return torch.tensor([_captured(space, block[order.to(block.device)]) for order in orders], dtype=torch.float64)
