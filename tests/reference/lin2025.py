"""The tangent kernel of the quadratic network by hand: arXiv 2510.00468, section 3, in closed form."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def quadratic_mlp_kernels(
    inputs: Float[Tensor, "example input"],
    hidden: Float[Tensor, "unit input"],
    readout: Float[Tensor, "output unit"],
) -> tuple[Float[Tensor, "example example"], Float[Tensor, "example example"]]:
    """Mean over outputs, for f = (1/n) V (W x / sqrt(2p))^2: the kernels of W and of V."""
    width, size = hidden.shape
    z = inputs @ hidden.T / size**0.5
    of_readout = (z**2) @ (z**2).T / width**2
    of_hidden = torch.zeros_like(of_readout)
    for v in readout:  # d f_c / d W = (2/n) v_k z_k x / sqrt(2p)
        of_hidden += 4 / (size * width**2) * (inputs @ inputs.T) * ((z * v) @ (z * v).T)
    return of_hidden / len(readout), of_readout


def shuffling_loader_orders(count: int, draws_before: int, seed: int) -> list[list[int]]:
    """Two passes of a shuffling DataLoader, an evaluation pass over a plain and over the shuffling one in between."""
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    torch.randn(draws_before)
    train = DataLoader(TensorDataset(torch.arange(count)), batch_size=4, shuffle=True)
    test = DataLoader(TensorDataset(torch.arange(3)), batch_size=2)
    first = torch.cat([batch for (batch,) in train]).tolist()
    list(test)
    list(train)
    return [first, torch.cat([batch for (batch,) in train]).tolist()]
