"""Layers whose outputs share one signal: b[n, c, t, k] = w[c, k] s[n, t, k].

So it is wherever only elementwise maps and averages lie between a layer and the linear head. Then

    K[n c, m d] = sum_k w[c, k] w[d, k] <M[n, k], M[m, k]>,   M[n, k] = sum_t s[n, t, k] a[n, t]

costs q p N^2 + C^2 q N^2 instead of C^2 N^2 q p, and C times less memory. Detected in the gradients, never assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.capture.factors import Outer


@dataclass(frozen=True)
class Separable:
    """The gradient w[c, k] M[n, k, :]."""

    signal: Float[Tensor, "example out into"]
    weight: Float[Tensor, "output out"]


def separated(factor: Outer) -> Separable | None:
    """The shared signal, if there is one up to rounding."""
    b = factor.b[:, :, :, 0]
    outputs, positions = b.shape[1:3]
    if factor.a.shape[2] != 1 or outputs == 1 or positions <= 1 or b.numel() == 0:
        return None
    if _split(b[:1]) is None:  # one example shows nearly every layer to have none
        return None
    found = _split(b)
    if found is None:
        return None
    weight, shared = found
    return Separable(shared.mT @ factor.a[:, :, 0], weight)


def _split(
    b: Float[Tensor, "example output position out"],
) -> tuple[Float[Tensor, "output out"], Float[Tensor, "example position out"]] | None:
    strength = b.square().sum(1).flatten(0, 1)  # (example position) out
    places = strength.argmax(0)
    columns = torch.arange(b.shape[3], device=b.device)
    strongest = b.transpose(1, 2).flatten(0, 1)[places, :, columns]  # out output
    weight = torch.nn.functional.normalize(strongest, dim=1, eps=torch.finfo(b.dtype).tiny).T
    shared = torch.einsum("nctk,ck->ntk", b, weight)
    tolerance = 1e-13 if b.dtype == torch.float64 else 2e-6
    left_over = torch.addcmul(b, weight[None, :, None, :], shared[:, None], value=-1)
    return (weight, shared) if left_over.norm() <= tolerance * b.norm() else None
