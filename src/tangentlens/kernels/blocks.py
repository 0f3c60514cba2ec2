"""From the gradients of two tiles of examples to their tile of the kernel, each form by its cheapest exact formula.

Two contractions: `full` keeps both output axes, `mean` averages the kernels of single outputs. Both add into a given
tile, so that a sum over layers makes no extra trip through memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.capture.factors import Factor, Formed, Lookup, Outer
from tangentlens.kernels.collapsed import Collapsed
from tangentlens.kernels.separable import Averaged, Separable

Full = Float[Tensor, "example output other output_"]
Mean = Float[Tensor, "example other"]
Part = Factor | Separable | Averaged | Collapsed

_STRETCH = 1 << 13
_AT_ONCE = 1 << 24  # entries of an intermediate; above, the columns are taken in parts
_CARRIED = {"cpu": 1 << 20, "cuda": 1 << 26}  # of one that is read again at once: stays in cache, fills the device
_PARTS = 8  # of a diagonal tile, at least: nine sixteenths of it are computed, in products that are still large
_SMALL = 32  # rows of a kernel that are not cut again


@dataclass(frozen=True)
class Gradients:
    """The gradients of a tile of examples with respect to one piece of a parameter, ready for products."""

    name: str
    shape: torch.Size
    factors: list[Part]
    sliced: bool = False
    """Too large to be formed at once: products are taken slice by slice (slices.py)."""

    def rows(self, start: int, stop: int) -> Gradients:
        return replace(self, factors=[_cut(f, start, stop) for f in self.factors])


def add_full(tile: Full, rows: Gradients, columns: Gradients) -> None:
    """tile[n, c, m, d] += <gradient of output c at n, gradient of output d at m>"""
    for left in rows.factors:
        for right in columns.factors:
            _full(tile, left, right, rows.shape)


def add_mean(tile: Mean, rows: Gradients, columns: Gradients) -> None:
    """tile[n, m] += mean over c of <gradient of output c at n, gradient of output c at m>"""
    for left in rows.factors:
        for right in columns.factors:
            _mean(tile, left, right, rows.shape)


def add_upper(add: Callable[[Tensor, Gradients, Gradients], None], tile: Tensor, gradients: Gradients) -> None:
    """Of a tile of examples with themselves what lies on and above the diagonal, little over half: the corner, which is
    a large square product, and so again in both halves that are left."""
    width = tile.shape[1] if tile.ndim == 4 else 1
    _upper(add, tile, gradients, max(-(-len(tile) // _PARTS), -(-_SMALL // width)))


def _upper(add: Callable[[Tensor, Gradients, Gradients], None], tile: Tensor, gradients: Gradients, least: int) -> None:
    count = len(tile)
    if count <= least:
        add(tile, gradients, gradients)
        return
    middle = count // 2
    first, second = gradients.rows(0, middle), gradients.rows(middle, count)
    full = tile.ndim == 4
    add(tile[:middle, :, middle:] if full else tile[:middle, middle:], first, second)
    _upper(add, tile[:middle, :, :middle] if full else tile[:middle, :middle], first, least)
    _upper(add, tile[middle:, :, middle:] if full else tile[middle:, middle:], second, least)


def mirrored(tile: Tensor) -> Tensor:
    """A tile of examples with themselves, its lower triangle taken from the upper: exactly symmetric, as eigensolvers
    that read one triangle alone need it. In place: a tile is as large as all else that a product needs."""
    square = tile.flatten(2).flatten(0, 1) if tile.ndim == 4 else tile
    square.triu_()
    square += square.triu(1).T
    return tile


def _full(tile: Full, left: Part, right: Part, shape: torch.Size) -> None:
    match left, right:
        case Separable(), Separable():
            c, d = len(left.weight), len(right.weight)
            weights = (left.weight[:, None] * right.weight).flatten(0, 1)
            tile.add_((weights @ _signals(left, right)).view(c, d, len(tile), -1).permute(2, 0, 3, 1))
        case Collapsed(), Collapsed():
            _collapsed_full(tile, left, right)
        case Formed(), Formed():
            _add_product(tile, left.flat.flatten(0, 1), right.flat.flatten(0, 1))
        case Outer(), Outer() if _one_group(left, right) and left.flipped == right.flipped:
            _outer_full(tile, left, right)
        case Outer(), Outer() if _one_group(left, right):
            _crossed_full(tile, left, right)
        case Lookup(), Lookup():
            for a, b in _compressed(left, right):
                _add_product(tile, a.flatten(0, 1).flatten(1), b.flatten(0, 1).flatten(1))
        case Lookup(), Outer() if not right.flipped and right.a.shape[2] == 1:
            _lookup_outer_full(tile, left, right)
        case Outer(), Lookup() if not left.flipped and left.a.shape[2] == 1:
            transposed = tile.permute(2, 3, 0, 1)
            _lookup_outer_full(transposed, right, left)
        case _:
            _full(tile, _form(left, shape), _form(right, shape), shape)


def _mean(tile: Mean, left: Part, right: Part, shape: torch.Size) -> None:
    match left, right:
        case Separable(), Separable():
            weights = (left.weight * right.weight).mean(0)
            tile.add_((weights @ _signals(left, right)).view(tile.shape))
        case Averaged(), Averaged():
            weights = (left.weight * right.weight).mean(0)
            tile.addcmul_(left.a @ right.a.T, (left.signal * weights) @ right.signal.T)
        case Collapsed(), Collapsed():
            _collapsed_mean(tile, left, right)
        case Formed(), Formed():
            _accumulate(tile, left.gradient.flatten(1), right.gradient.flatten(1), 1 / left.gradient.shape[1])
        case Outer(), Outer() if _one_group(left, right) and left.flipped == right.flipped:
            _outer_mean(tile, left, right)
        case Lookup(), Lookup():
            for a, b in _compressed(left, right):
                _accumulate(tile, a.flatten(1), b.flatten(1), 1 / a.shape[1])
        case (Outer() | Lookup(), Outer() | Lookup()) if _groups(left) == _groups(right) == 1:
            full = tile.new_zeros(len(tile), left.b.shape[1], tile.shape[1], right.b.shape[1])
            _full(full, left, right, shape)
            tile.add_(full.diagonal(dim1=1, dim2=3).mean(-1))
        case _:
            _mean(tile, _form(left, shape), _form(right, shape), shape)


def _add_product(tile: Full, left: Float[Tensor, "row parameter"], right: Float[Tensor, "column parameter"]) -> None:
    n, c, m, d = tile.shape
    _accumulate(tile.view(n * c, m * d), left, right)  # a part of a tile, or its transpose, merges as well


def _accumulate(
    tile: Float[Tensor, "row column"],
    left: Float[Tensor, "row parameter"],
    right: Float[Tensor, "column parameter"],
    alpha: float = 1.0,
) -> None:
    """tile += alpha left right^T, summed in stretches: one float32 sum over a million parameters is off by 7e-5."""
    for start in range(0, left.shape[1], _STRETCH):
        stop = start + _STRETCH
        tile.addmm_(left[:, start:stop], right[:, start:stop].T, alpha=alpha)


def _signals(left: Separable, right: Separable) -> Float[Tensor, "out pair"]:
    """<M[n, k], M[m, k]> for every unit k and pair of examples."""
    return torch.bmm(left.signal.transpose(0, 1), right.signal.permute(1, 2, 0)).flatten(1)


def _collapsed_full(tile: Full, left: Collapsed, right: Collapsed) -> None:
    (n, c, _), (m, d, _) = left.b.shape, right.b.shape
    for a1, b1, a2, b2 in _by_group(left, right):
        inputs = a1.reshape(n * c, -1) @ a2.reshape(m * d, -1).T
        tile.addcmul_((b1.reshape(n * c, -1) @ b2.reshape(m * d, -1).T).view(n, c, m, d), inputs.view(n, c, m, d))


def _collapsed_mean(tile: Mean, left: Collapsed, right: Collapsed) -> None:
    for a1, b1, a2, b2 in _by_group(left, right):
        inputs = torch.bmm(a1.transpose(0, 1), a2.permute(1, 2, 0))  # output example other
        tile += torch.bmm(b1.transpose(0, 1), b2.permute(1, 2, 0)).mul_(inputs).mean(0)


def _by_group(left: Collapsed, right: Collapsed) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """(example output into) and (example output out) of both sides, group by group."""
    sizes = left.groups.sizes
    for g, (b1, b2) in enumerate(zip(left.b.split(sizes, 2), right.b.split(sizes, 2), strict=True)):
        yield left.a[:, :, g], b1, right.a[:, :, g], b2


def _outer_full(tile: Full, left: Outer, right: Outer) -> None:
    a1, b1, a2, b2 = left.a[:, :, 0], left.b[:, :, :, 0], right.a[:, :, 0], right.b[:, :, :, 0]
    n, c, t, q = b1.shape
    m, d, s, _ = b2.shape
    if t == s == 1:
        inputs = a1[:, 0] @ a2[:, 0].T
        if same_for_all(b1) and same_for_all(b2):  # the head: its output gradient is the same at every example
            tile.addcmul_(inputs[:, None, :, None], (b1[0, :, 0] @ b2[0, :, 0].T)[None, :, None, :])
        else:
            signals = (b1[:, :, 0].reshape(n * c, q) @ b2[:, :, 0].reshape(m * d, q).T).reshape(n, c, m, d)
            tile.addcmul_(inputs[:, None, :, None], signals)
        return
    entries = d * t * max(s, q)
    some = min(n, max(1, _CARRIED.get(tile.device.type, 1 << 20) // max(1, entries)))
    many = max(1, _CARRIED.get(tile.device.type, 1 << 20) // max(1, some * entries))
    for start in range(0, n, some):
        for begin in range(0, m, many):
            rows, columns = slice(start, start + some), slice(begin, begin + many)
            tile[rows, :, columns] += _contracted(a1[rows], b1[rows], a2[columns], b2[columns])


def _contracted(
    a1: Float[Tensor, "example position into"],
    b1: Float[Tensor, "example output position out"],
    a2: Float[Tensor, "other position_ into"],
    b2: Float[Tensor, "other output_ position_ out"],
) -> Full:
    """sum over t, s of <a1[n, t], a2[m, s]> <b1[n, c, t], b2[m, d, s]>: b2 is carried to the positions of n first. It
    comes out (other output, example, position, out), which the second product reads as it lies."""
    n, c, t, q = b1.shape
    m, d, s, _ = b2.shape
    inputs = (a1.flatten(0, 1) @ a2.flatten(0, 1).T).view(n * t, m, 1, s).permute(1, 2, 0, 3)
    carried = torch.bmm(inputs.expand(m, d, n * t, s).reshape(m * d, n * t, s), b2.reshape(m * d, s, q))
    carried = carried.view(m * d, n, t * q).permute(1, 2, 0)
    return torch.bmm(b1.reshape(n, c, t * q), carried).view(n, c, m, d)


def _outer_mean(tile: Mean, left: Outer, right: Outer) -> None:
    a1, b1, a2, b2 = left.a[:, :, 0], left.b[:, :, :, 0], right.a[:, :, 0], right.b[:, :, :, 0]
    n, c, t, q = b1.shape
    m, _, s, _ = b2.shape
    if t == s == 1:
        signals = b1[:, :, 0].reshape(n, c * q) @ b2[:, :, 0].reshape(m, c * q).T
        tile.addcmul_(a1[:, 0] @ a2[:, 0].T, signals, value=1 / c)
        return
    step = max(1, _AT_ONCE // max(1, n * t * s))
    signals = b1.transpose(1, 2).reshape(n * t, c * q)
    for start in range(0, m, step):
        stop = min(m, start + step)
        k = stop - start
        product = signals @ b2[start:stop].transpose(1, 2).reshape(k * s, c * q).T
        product *= a1.flatten(0, 1) @ a2[start:stop].flatten(0, 1).T
        tile[:, start:stop].add_(product.reshape(n, t, k, s).sum((1, 3)), alpha=1 / c)


def _crossed_full(tile: Full, left: Outer, right: Outer) -> None:
    """One use sees the matrix, the other its transpose: <b (x) a, a' (x) b'> = <b, a'> <a, b'>."""
    forward = torch.einsum("nctq,msq->nctms", left.b[:, :, :, 0], right.a[:, :, 0])
    backward = torch.einsum("ntp,mdsp->ntmds", left.a[:, :, 0], right.b[:, :, :, 0])
    tile.add_(torch.einsum("nctms,ntmds->ncmd", forward, backward))


def _lookup_outer_full(tile: Full, left: Lookup, right: Outer) -> None:
    """A table that is also a matrix (tied embedding and head): row `ids` of b' (x) a'."""
    picked = right.b[:, :, :, 0][:, :, :, left.ids.clamp(min=0)]  # other output position' example position
    against = torch.einsum("nctq,msq->nctms", left.b, right.a[:, :, 0])
    tile.add_(torch.einsum("nctms,mdsnt->ncmd", against, picked))


def _compressed(left: Lookup, right: Lookup) -> list[tuple[Tensor, Tensor]]:
    """Dense gradients over the rows of the table that both tiles look up, in parts that fit."""
    tokens = torch.unique(left.ids[left.ids >= 0])
    tokens = tokens[torch.isin(tokens, right.ids.contiguous())]  # isin views the second set flat
    width = left.b.shape[-1] * max(left.b.shape[0] * left.b.shape[1], right.b.shape[0] * right.b.shape[1])
    step = max(1, _AT_ONCE // width)
    return [
        (_over(left, tokens[i : i + step]), _over(right, tokens[i : i + step])) for i in range(0, len(tokens), step)
    ]


def _over(factor: Lookup, tokens: Int[Tensor, " token"]) -> Float[Tensor, "example output token out"]:
    place = torch.searchsorted(tokens, factor.ids.contiguous()).clamp(max=len(tokens) - 1)
    present = tokens[place] == factor.ids
    n, c, _, q = factor.b.shape
    table = factor.b.new_zeros(n, c, len(tokens), q)
    b = torch.where(present[:, None, :, None], factor.b, 0)
    return table.scatter_add_(2, place[:, None, :, None].expand_as(b), b)


def _form(factor: Part, shape: torch.Size) -> Formed:
    if isinstance(factor, Separable | Averaged | Collapsed):  # cannot meet another form: a piece has one way throughout
        raise TypeError("a piece in one form met itself in another")
    return factor.formed(shape)


def same_for_all(b: Tensor) -> bool:
    """Checked on the first two examples before all of them: nearly every layer fails at once."""
    if len(b) == 1 or not torch.equal(b[0], b[-1]):
        return False
    return bool((b == b[:1]).all())


def _groups(factor: Part) -> int:
    return factor.a.shape[2] if isinstance(factor, Outer) else (1 if isinstance(factor, Lookup) else 0)


def _one_group(left: Outer, right: Outer) -> bool:
    return left.a.shape[2] == right.a.shape[2] == 1


def _cut(factor: Part, start: int, stop: int) -> Part:
    match factor:
        case Separable():
            return Separable(factor.signal[start:stop], factor.weight)
        case Averaged():
            return Averaged(factor.a[start:stop], factor.signal[start:stop], factor.weight)
        case Collapsed():
            return Collapsed(factor.a[start:stop], factor.b[start:stop], factor.groups)
        case Outer():
            return Outer(factor.a[start:stop], factor.b[start:stop], factor.flipped)
        case Lookup():
            return Lookup(factor.ids[start:stop], factor.b[start:stop])
        case _:
            return Formed(factor.gradient[start:stop])
