"""Layers in which groups of units share one profile over positions: b[n, c, t, k] = s[n, c, g, t] e[n, c, k], k in g.

So it is for the keys and values of attention whose result is read at one position (the last token, a class token):
value k of head g arrives weighted by the attention that t received, and key k by how that attention would change. The
sum over positions then collapses to one outer product a group,

    G[n, c][k in g] = e[n, c, k] (x) A[n, c, g],   A[n, c, g] = sum_t s[n, c, g, t] a[n, t],

and the kernel to sum_g <e[n, c], e[m, d]>_g <A[n, c, g], A[m, d, g]>: C^2 (q + G p) N^2 instead of C^2 q p N^2, with
G groups. They are found in the gradients of a few examples and held to in all others, never assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.capture.factors import Outer

_PARALLEL = 1e-5  # sine squared below which two profiles are worth a closer look; cosines in float32 tell no more
_LEAST = 8  # times cheaper than to form the gradient, or nothing is gained


@dataclass(frozen=True)
class Groups:
    """The units group by group: `order` lists them, `sizes` counts those of each."""

    order: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Collapsed:
    """The gradient e[n, c, k] A[n, c, g, :] of unit k of group g; units in the order of their groups."""

    a: Float[Tensor, "example output group into"]
    b: Float[Tensor, "example output out"]
    groups: Groups


def groups_in(outer: Outer) -> Groups | None:
    """Units whose profiles over positions are parallel at every example and output, if they form few groups."""
    t, q, p = outer.b.shape[2], outer.b.shape[4], outer.a.shape[3]
    most = p * q // (_LEAST * (p + 1)) if p else 0
    if outer.a.shape[2] != 1 or t < 2 or most < 1:
        return None
    b = outer.b[:, :, :, 0].cpu().double()  # a few examples, and float64 is not to be had everywhere
    if _profiles(b[0, 0]) > most:
        return None  # nearly every layer shows at once that its units go their own ways
    strength = b.square().sum((0, 1, 2))
    profiles = torch.nn.functional.normalize(b, dim=2, eps=torch.finfo(b.dtype).tiny)
    alive = profiles.any(2)
    left = torch.ones(q, dtype=torch.bool)
    found: list[list[int]] = []
    while bool(left.any()):
        if len(found) == most:
            return None
        leader = int(torch.where(left, strength, -1).argmax())
        along = (profiles * profiles[..., leader, None]).sum(2)
        apart = (1 - along.square()).clamp(min=0) * (alive & alive[..., leader, None])
        members = left & (apart.amax((0, 1)) <= _PARALLEL)
        members[leader] = True  # whatever the numbers, each round takes one
        found.append(members.nonzero().flatten().tolist())
        left &= ~members
    found.sort()
    return Groups(tuple(k for group in found for k in group), tuple(map(len, found)))


def _profiles(b: Float[Tensor, "position out"]) -> int:
    """How many directions over positions the units have at one example and output, told apart by the angle of two
    random projections: parallel ones have the same, whatever their size and sign."""
    generator = torch.Generator().manual_seed(len(b))
    onto = torch.randn(2, len(b), generator=generator, dtype=torch.float64)
    across, along = onto @ b[:, b.any(0)]
    angles = (torch.atan2(across, along) % torch.pi).sort().values
    return int((angles.diff() > _PARALLEL).sum()) + 1


def collapsed(outer: Outer, groups: Groups) -> Collapsed | None:
    """The same gradient over these groups of units, if they share their profiles here too, up to rounding."""
    if outer.a.shape[2] != 1 or outer.b.shape[4] != len(groups.order):
        return None
    b: Float[Tensor, "example output position out"] = outer.b[:, :, :, 0]
    order = torch.tensor(groups.order, device=b.device)
    if not torch.equal(order, torch.arange(len(order), device=b.device)):
        b = b[..., order]
    norms = torch.linalg.vector_norm(b, dim=2)
    profiles, sizes, off, whole = [], [], 0.0, 0.0
    for part, norm in zip(b.split(groups.sizes, 3), norms.split(groups.sizes, 2), strict=True):
        strongest: Int[Tensor, "example output 1 1"] = norm.argmax(2)[:, :, None, None]
        profile = part.gather(3, strongest.expand(*part.shape[:3], 1))
        profile = torch.nn.functional.normalize(profile, dim=2, eps=torch.finfo(b.dtype).tiny)
        size = (part * profile).sum(2)
        off += (part - profile * size[:, :, None]).square().sum().item()
        whole += part.square().sum().item()
        profiles.append(profile)
        sizes.append(size)
    tolerance = 1e-13 if b.dtype == torch.float64 else 2e-6
    if not off <= tolerance**2 * whole:
        return None
    n, c, t, _ = b.shape
    shared = torch.cat(profiles, 3).transpose(2, 3).reshape(n, c * len(groups.sizes), t)
    return Collapsed((shared @ outer.a[:, :, 0]).unflatten(1, (c, -1)), torch.cat(sizes, 2), groups)
