"""Layers whose outputs share one signal: b[n, c, t, k] = w[c, k] s[n, t, k].

So it is wherever only elementwise maps and averages lie between a layer and the linear head. Then

    K[n c, m d] = sum_k w[c, k] w[d, k] <M[n, k], M[m, k]>,   M[n, k] = sum_t s[n, t, k] a[n, t]

costs q p N^2 + C^2 q N^2 instead of C^2 N^2 q p, and C times less memory. At a single position the mean over outputs is
<a[n], a[m]> sum_k mean_c w[c, k]^2 s[n, k] s[m, k]: (p + q) N^2 instead of (p + C q) N^2. Detected in the gradients,
never assumed: examples captured together show one w, and those captured apart keep their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.capture.factors import Outer

_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Separable:
    """The gradient w[c, k] M[n, k, :]."""

    signal: Float[Tensor, "example out into"]
    weight: Float[Tensor, "output out"]


@dataclass(frozen=True)
class Averaged:
    """The gradient w[c, k] s[n, k] a[n, :] of one position, kept apart: for means over outputs."""

    a: Float[Tensor, "example into"]
    signal: Float[Tensor, "example out"]
    weight: Float[Tensor, "output out"]


def separated(factor: Outer) -> Separable | None:
    """The shared signal over several positions, if there is one up to rounding."""
    if factor.a.shape[2] != 1 or factor.a.shape[1] == 1:
        return None
    found = shared_signal(factor.b[:, :, :, 0])
    if found is None:
        return None
    weight, shared = found
    return Separable(shared.mT @ factor.a[:, :, 0], weight)


def averaged(factor: Outer) -> Averaged | None:
    """The shared signal at a single position, if there is one up to rounding."""
    if factor.a.shape[1:3] != (1, 1):
        return None
    found = shared_signal(factor.b[:, :, :, 0])
    return None if found is None else Averaged(factor.a[:, 0, 0], found[1][:, 0], found[0])


def shared_signal(
    b: Float[Tensor, "example output position out"],
) -> tuple[Float[Tensor, "output out"], Float[Tensor, "example position out"]] | None:
    """w and s with b = w s up to rounding, each w[:, k] of norm 1; nothing where outputs have signals of their own."""
    outputs, positions = b.shape[1:3]
    if outputs == 1 or b.numel() == 0:
        return None
    few = 1 if positions > 1 else 4  # so many examples show nearly every layer to have none
    if len(b) > few and _split(b[:few]) is None:
        return None
    return _split(b)


def _split(
    b: Float[Tensor, "example output position out"],
) -> tuple[Float[Tensor, "output out"], Float[Tensor, "example position out"]] | None:
    step = max(1, _AT_ONCE // b[0].numel())  # each part is read several times: small enough for the cache
    parts = [b[start : start + step] for start in range(0, len(b), step)]
    # for each unit the outputs' gradients where they are strongest, with norm 1
    places = torch.cat([part.square().sum(1) for part in parts]).flatten(0, 1).argmax(0)
    columns = torch.arange(b.shape[3], device=b.device)
    strongest = b.transpose(1, 2)[places // b.shape[2], places % b.shape[2], :, columns]  # out output
    weight = torch.nn.functional.normalize(strongest, dim=1, eps=torch.finfo(b.dtype).tiny).T
    shared, left_over, whole = [], 0.0, 0.0
    for part in parts:
        signal = (part * weight[None, :, None]).sum(1)
        left_over += torch.addcmul(part, weight[None, :, None], signal[:, None], value=-1).square().sum().item()
        whole += part.square().sum().item()
        shared.append(signal)
    tolerance = 1e-13 if b.dtype == torch.float64 else 2e-6
    return (weight, torch.cat(shared)) if left_over <= tolerance**2 * whole else None
