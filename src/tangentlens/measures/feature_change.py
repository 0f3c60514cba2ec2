"""How far features and kernels have moved since the start: the measures of richness that look back."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.forward_moments import ForwardMoments, constant


def initial_similarity(moments: ForwardMoments) -> float:
    """S_init: the CKA (centred kernel alignment) of the current with the initial features; 1 where they never moved.

    ||C_0t||_F^2 / (||C_00||_F ||C_tt||_F) with C_st the covariance of features at s and t; a baseline in
    arXiv 2410.04264 v3. It judges by the kernel at the start, and moves under weight decay without rich dynamics.
    """
    cross = float(moments.covariance("initial", "features").square().sum())
    now = float(moments.covariance("features", "features").square().sum())
    start = float(moments.covariance("initial", "initial").square().sum())
    if constant(moments, "features") or constant(moments, "initial"):  # no kernel to compare
        return math.nan
    # for untouched features the three sums are the same number, and its square root squared would not be
    return cross / now if now == start else cross / math.sqrt(now * start)


def kernel_distance(
    kernel: Float[Tensor, "example example"], other: Float[Tensor, "other other"], *, centred: bool = False
) -> float:
    """1 - <K, K'>_F / (||K|| ||K'||): the change of a tangent kernel between two times, 0 when only its scale changed.

    Uncentred as in the code of arXiv 2502.21009; centred gives 1 - CKA.
    """
    if kernel.shape != other.shape:
        raise ValueError(f"kernels compare on the same examples, got {tuple(kernel.shape)} and {tuple(other.shape)}")
    first, second = kernel.detach().double(), other.detach().double()
    if centred:
        first, second = _doubly_centred(first), _doubly_centred(second)
    norms = torch.linalg.matrix_norm(first) * torch.linalg.matrix_norm(second)
    return 1 - float((first * second).sum() / norms)


def squared_norm(tensors: Iterable[Tensor]) -> float:
    """||theta||^2 over the parameters: grows in most rich runs, and only goes along with richness."""
    return math.fsum(float(tensor.detach().double().square().sum()) for tensor in tensors)


def _doubly_centred(kernel: Tensor) -> Tensor:
    return kernel - kernel.mean(0, keepdim=True) - kernel.mean(1, keepdim=True) + kernel.mean()
