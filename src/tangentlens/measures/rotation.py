"""A basis for a near-degenerate block of modes, from an operator of the user's choosing.

Eigenvalues within a cliff are nearly equal, so its modes come in an arbitrary basis. An overlap of subspaces needs none
and is the default everywhere; a rotation makes single modes readable, but presupposes the structure of its operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RotatedBlock:
    """The same span in another basis; `roughness` is v^T L v of each new mode, smallest first within each part."""

    modes: Float[Tensor, "row mode"]
    roughness: Float[Tensor, "mode"]
    first_part: int


def rotated_block(block: Float[Tensor, "row mode"], operator: Float[Tensor, "row row"]) -> RotatedBlock:
    """Rotate a block to the eigenvectors of the operator seen inside it, the smoothest first."""
    basis = torch.linalg.qr(block.to(torch.float64)).Q
    roughness, turn = torch.linalg.eigh(basis.T @ operator.to(basis) @ basis)
    return RotatedBlock(basis @ turn, roughness, len(roughness))


def two_stage_rotation(
    block: Float[Tensor, "row mode"],
    first: Float[Tensor, "row row"],
    second: Float[Tensor, "row row"],
    *,
    split: int | None = None,
) -> RotatedBlock:
    """Rotate by the first operator, then its smoothest part once more by the second (lin2025 v1-v3).

    The paper splits at half of the block by count; here, unless `split` says so, the cut is where the first roughness
    rises by the largest factor. Result: the smoothest part in the second operator's order, then the rest in the first
    one's.
    """
    whole = rotated_block(block, first)
    size = whole.modes.shape[1]
    # the smooth part has a roughness of rounding, or of what leaked into it: a thousandth of the largest counts as none
    rises = whole.roughness.clamp(min=1e-3 * float(whole.roughness[-1].abs())).log().diff()
    cut = int(rises.argmax()) + 1 if split is None and size > 1 else (split or size)
    if not 1 <= cut <= size:
        raise ValueError(f"a block of {size} modes splits after 1 to {size} of them, got {split}")
    smooth = rotated_block(whole.modes[:, :cut], second)
    return RotatedBlock(
        torch.cat([smooth.modes, whole.modes[:, cut:]], 1), torch.cat([smooth.roughness, whole.roughness[cut:]]), cut
    )


def torus_laplacian(period: int, first_step: int, second_step: int) -> Float[Tensor, "row row"]:
    """Roughness along one direction of the p x p torus: v^T L v = sum over rows of (v - v moved by the step)^2.

    Rows are a*p + b. Steps (1, 0) and (0, 1) give the axes, (1, 1) and (1, -1) the diagonals; a function of a - b does
    not change along (1, 1), one of a + b not along (1, -1).
    """
    grid = torch.arange(period * period).reshape(period, period)
    moved = grid.roll((first_step, second_step), (0, 1)).flatten()
    shift = torch.eye(period * period, dtype=torch.float64)[moved]
    return 2 * torch.eye(period * period, dtype=torch.float64) - shift - shift.T
