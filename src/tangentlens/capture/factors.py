"""The gradient of every output with respect to one parameter, for a chunk of examples, in the form it was read in.

Three forms, one meaning: row (n, c) is d output_c(x_n) / d parameter. `Outer` and `Lookup` keep the two factors
(a, b) apart, which is what makes kernels cheap; `Formed` holds the gradient itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Outer:
    """sum over positions of b (x) a: a matrix product, or a convolution over patches; `group` for block-diagonal maps.

    The parameter is a (group * b, a) matrix, or (group * a, b) when `flipped`.
    """

    a: Float[Tensor, "example position group into"]
    b: Float[Tensor, "example output position group out"]
    flipped: bool = False

    def formed(self, shape: torch.Size) -> Formed:
        n, c, t, g, q = self.b.shape
        p = self.a.shape[-1]
        a = self.a.permute(0, 2, 1, 3).reshape(n * g, t, p)
        b = self.b.permute(0, 3, 1, 4, 2).reshape(n * g, c * q, t)
        product = torch.bmm(b, a).view(n, g, c, q, p).transpose(1, 2)
        return Formed((product.transpose(3, 4) if self.flipped else product).reshape(n, c, *shape))

    @property
    def values(self) -> int:
        return self.a.numel() + self.b.numel()


@dataclass(frozen=True)
class Lookup:
    """sum over positions of b at row `ids` of a table; positions that look nothing up have id -1 and b = 0."""

    ids: Int[Tensor, "example position"]
    b: Float[Tensor, "example output position out"]

    def formed(self, shape: torch.Size) -> Formed:
        n, c, _, q = self.b.shape
        table = self.b.new_zeros(n, c, shape[0], q)
        index = self.ids.clamp(min=0)[:, None, :, None].expand_as(self.b)
        return Formed(table.scatter_add_(2, index, self.b).reshape(n, c, *shape))

    @property
    def values(self) -> int:
        return self.ids.numel() + self.b.numel()


@dataclass(frozen=True)
class Formed:
    """The gradient itself, with the shape of the parameter behind the two row axes."""

    gradient: Float[Tensor, "example output ..."]

    def formed(self, shape: torch.Size) -> Formed:
        return self

    @property
    def flat(self) -> Float[Tensor, "example output parameter"]:
        return self.gradient.flatten(2) if self.gradient.ndim > 2 else self.gradient[:, :, None]

    @property
    def values(self) -> int:
        return self.gradient.numel()


Factor = Outer | Lookup | Formed


def detached(factor: Factor, dtype: torch.dtype) -> Factor:
    """Cut from the graph, which a saved tensor would keep alive, and in one precision throughout."""
    match factor:
        case Outer():
            return Outer(factor.a.detach().to(dtype), factor.b.detach().to(dtype), factor.flipped)
        case Lookup():
            return Lookup(factor.ids, factor.b.detach().to(dtype))
        case _:
            return Formed(factor.gradient.detach().to(dtype))


def merged(factors: list[Factor]) -> list[Factor]:
    """Several uses of one parameter: their gradients add up, so uses of one form become more positions."""
    kept: list[Factor] = []
    for factor in factors:
        for index, other in enumerate(kept):
            together = _joined(other, factor)
            if together is not None:
                kept[index] = together
                break
        else:
            kept.append(factor)
    return kept


def formed(factors: list[Factor], shape: torch.Size) -> Formed:
    """The gradient itself, summed over uses."""
    total = factors[0].formed(shape).gradient
    for factor in factors[1:]:
        total = total + factor.formed(shape).gradient
    return Formed(total)


def _joined(left: Factor, right: Factor) -> Factor | None:
    if isinstance(left, Outer) and isinstance(right, Outer) and _alike(left, right):
        return Outer(torch.cat([left.a, right.a], 1), torch.cat([left.b, right.b], 2), left.flipped)
    if isinstance(left, Lookup) and isinstance(right, Lookup):
        return Lookup(torch.cat([left.ids, right.ids], 1), torch.cat([left.b, right.b], 2))
    if isinstance(left, Formed) and isinstance(right, Formed):
        return Formed(left.gradient + right.gradient)
    return None


def without_dead_positions(factor: Factor) -> Factor:
    """Drop positions no output depends on: exact, and after last-token outputs nearly everything goes."""
    if isinstance(factor, Formed):
        return factor
    if factor.b.shape[2] == 1 or (factor.b.shape[1] and bool(_live(factor.b[:, :1]).all())):
        return factor  # mostly the first output shows it: no need to read them all
    live = _live(factor.b)
    longest = int(live.sum(1).max()) if live.numel() else 0
    if longest == live.shape[1]:
        return factor
    longest = max(longest, 1)
    order = torch.argsort((~live).to(torch.uint8), dim=1, stable=True)[:, :longest]
    rows = torch.arange(len(order), device=order.device)[:, None]
    b = factor.b.transpose(1, 2)[rows, order].transpose(1, 2)
    if isinstance(factor, Outer):
        return replace(factor, a=factor.a[rows, order], b=b)
    return Lookup(factor.ids[rows, order], b)


def _live(b: Tensor) -> Tensor:
    """Positions (example, position) at which some of these outputs have a gradient."""
    return (b != 0).flatten(3).any(-1).any(1)


def _alike(left: Outer, right: Outer) -> bool:
    same = left.flipped == right.flipped and left.a.shape[2:] == right.a.shape[2:]
    return same and left.b.shape[3:] == right.b.shape[3:]
