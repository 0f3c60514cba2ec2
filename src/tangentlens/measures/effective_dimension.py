"""How many modes share the weight."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def effective_dimension(weights: Float[Tensor, "mode"]) -> Float[Tensor, ""]:
    """exp of the entropy of the normalised weights (arXiv 2410.04264 v1): of eigenvalues, qualities or utilisations.

    Equal weights give their number, a single one gives 1; nothing to share gives nan.

    >>> float(effective_dimension(torch.tensor([2.0, 2.0, 2.0, 0.0])))
    3.0
    """
    if not bool((weights > 0).any()):
        return weights.new_tensor(torch.nan)
    share = weights.clamp_min(0)
    share = share / share.sum()
    return torch.exp(-torch.special.xlogy(share, share).sum())
