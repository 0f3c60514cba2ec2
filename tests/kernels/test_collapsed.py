"""Keys and values of attention read at one position: groups of units share their positions, and kernels stay exact."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from benchmarks import models
from tangentlens.capture.factors import Outer
from tangentlens.kernels import entk, entk_by_layer, entk_full, plan
from tangentlens.kernels.collapsed import Groups, collapsed, groups_in
from tests.reference import tangent


class LastQuery(nn.Module):
    """Keys and values of their own, met by one query per head; `mixed` gives every value its own weights."""

    def __init__(self, width: int = 24, heads: int = 2, outputs: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.keys, self.values = nn.Linear(width, width), nn.Linear(width, width)
        self.queries = nn.Linear(width, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def mixed(self, keys: Tensor, values: Tensor, query: Tensor) -> Tensor:
        return ((query @ keys.mT).softmax(-1) @ values)[:, :, 0].flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        query = self.split(self.queries(x[:, -1:]))
        mixed = self.mixed(self.split(self.keys(x)), self.split(self.values(x)), query)
        return self.head(mixed)


class ByUnit(LastQuery):
    """Each unit of the values attends to the positions in its own way."""

    def mixed(self, keys: Tensor, values: Tensor, query: Tensor) -> Tensor:
        return ((keys * query).softmax(2) * values).sum(2).flatten(1)


class Sometimes(LastQuery):
    """As the first where an example begins with a positive number, else as the second: the data decides."""

    def mixed(self, keys: Tensor, values: Tensor, query: Tensor) -> Tensor:
        shared = super().mixed(keys, values, query)
        own = ((keys * query).softmax(2) * values).sum(2).flatten(1)
        return torch.where(self.shares[:, None], shared, own)

    def forward(self, x: Tensor) -> Tensor:
        self.shares = x[:, 0, 0] > 0
        return super().forward(x)


def exact(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    jacobian = tangent.jacobian(tangent.in_float64(model), inputs.double() if inputs.is_floating_point() else inputs)
    return tangent.full_kernel(jacobian), tangent.kernel(jacobian)


def ways(model: nn.Module, inputs: Tensor, reduction: str = "full") -> dict[str, str]:
    return {row.name: row.way for row in plan(model, inputs, reduction=reduction).rows}


def sequences(examples: int, length: int = 9, width: int = 24) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(examples, length, width)


def outer(b: Tensor, into: int = 24) -> Outer:
    """b (example output position out) beside random inputs."""
    return Outer(torch.randn(len(b), b.shape[2], 1, into, dtype=b.dtype), b.unsqueeze(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk", [None, 2])
def test_kernels_through_collapsed_units_are_those_of_the_jacobian(dtype: torch.dtype, chunk: int | None) -> None:
    torch.manual_seed(0)
    model, inputs = LastQuery(), sequences(40)
    for reduction in ("full", "mean"):
        assert ways(model, inputs, reduction)["keys.weight"] == "collapsed"
        assert ways(model, inputs, reduction)["values.weight"] == "collapsed"
    full, mean = exact(model, inputs)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    assert (entk_full(model, inputs, dtype=dtype, chunk=chunk) - full).norm() <= tolerance * full.norm()
    assert (entk(model, inputs, dtype=dtype, chunk=chunk) - mean).norm() <= tolerance * mean.norm()
    crossed = entk_full(model, inputs[:7], inputs[7:], dtype=dtype, chunk=chunk)
    assert (crossed - full[:7, :, 7:]).norm() <= tolerance * full.norm()
    by_parameter = entk_by_layer(model, inputs, by="parameter", dtype=dtype, chunk=chunk)  # no bias is folded here
    assert (sum(by_parameter.values()) - mean).norm() <= tolerance * mean.norm()


def test_heads_packed_into_one_weight_are_found_head_by_head() -> None:
    """Of one weight the last block's queries (one position), the keys and the values of each head."""
    torch.manual_seed(0)
    model = models.Transformer(2, 32, 4, 7, 11, 5)
    inputs = torch.randint(11, (20, 7))
    assert ways(model, inputs)["blocks.1.packed.weight"] == "collapsed"
    assert ways(model, inputs)["blocks.0.packed.weight"] != "collapsed"
    full, _ = exact(model, inputs)
    assert (entk_full(model, inputs) - full).norm() <= 2e-6 * full.norm()


def test_units_with_positions_of_their_own_are_not_collapsed() -> None:
    torch.manual_seed(0)
    model, inputs = ByUnit(), sequences(40)
    found = ways(model, inputs)
    assert "collapsed" not in (found["keys.weight"], found["values.weight"])
    full, _ = exact(model, inputs)
    assert (entk_full(model, inputs) - full).norm() <= 2e-6 * full.norm()


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_groups_that_later_examples_do_not_share_are_given_up(chunk: int | None) -> None:
    """The first examples, which the plan looks at, share; a later one does not, alone or among others."""
    torch.manual_seed(0)
    model, inputs = Sometimes(), sequences(12)
    inputs[:, 0, 0] = 1.0
    inputs[8, 0, 0] = -1.0
    assert ways(model, inputs)["values.weight"] == "collapsed"
    full, mean = exact(model, inputs)
    assert (entk_full(model, inputs, chunk=chunk) - full).norm() <= 2e-6 * full.norm()
    assert (entk(model, inputs, chunk=chunk) - mean).norm() <= 2e-6 * mean.norm()


def test_groups_need_not_be_neighbours_and_signs_do_not_part_them() -> None:
    torch.manual_seed(0)
    profiles, sizes = torch.randn(3, 2, 5, 2), torch.randn(3, 2, 24)
    b = profiles[..., torch.arange(24) % 2] * sizes[:, :, None]
    found = groups_in(outer(b))
    assert found is not None
    assert found.order == (*range(0, 24, 2), *range(1, 24, 2)) and found.sizes == (12, 12)


def test_a_dead_unit_joins_a_group_and_must_keep_to_it() -> None:
    torch.manual_seed(0)
    b = torch.randn(3, 2, 5, 1).expand(-1, -1, -1, 16) * torch.randn(3, 2, 1, 16)
    b[..., 3] = 0
    found = groups_in(outer(b))
    assert found == Groups(tuple(range(16)), (16,))
    b = b.clone()
    b[0, 0, :, 3] = torch.randn(5)
    assert collapsed(outer(b), found) is None


def test_profiles_apart_by_more_than_rounding_are_refused() -> None:
    """A thousandth of the largest gradient in one unit at one example: no kernel may leave that out."""
    torch.manual_seed(0)
    b = torch.randn(3, 2, 5, 1).expand(-1, -1, -1, 16) * torch.randn(3, 2, 1, 16)
    groups = Groups(tuple(range(16)), (16,))
    kept = collapsed(outer(b), groups)
    assert kept is not None
    b = b.clone()
    b[1, 0, 2, 4] += 1e-3 * b.abs().max()
    assert collapsed(outer(b), groups) is None
    assert collapsed(outer(torch.full_like(b, float("nan"))), groups) is None


def test_a_collapsed_gradient_is_the_formed_one() -> None:
    torch.manual_seed(0)
    b = torch.randn(3, 2, 5, 2).double()[..., torch.arange(24) % 2] * torch.randn(3, 2, 1, 24)
    factor = outer(b, into=7)
    groups = groups_in(factor)
    assert groups is not None
    one = collapsed(factor, groups)
    assert one is not None
    group = torch.repeat_interleave(torch.arange(2), torch.tensor(groups.sizes))
    rebuilt = torch.empty(3, 2, 24, 7, dtype=torch.float64)
    rebuilt[:, :, list(groups.order)] = one.b[..., None] * one.a[:, :, group]
    assert torch.allclose(rebuilt, factor.formed(torch.Size([24, 7])).gradient, rtol=1e-12, atol=1e-12)
