"""Whose row is whose, where one example's gradients dwarf those of all others."""

from __future__ import annotations

import pytest
import torch
from torch import nn, randn

from tangentlens.kernels import entk_full
from tests.reference import tangent
from tests.zoo.entry import Written


@pytest.mark.parametrize(
    ("dtype", "factor"), [(torch.float32, 1e3), (torch.float32, 1e6), (torch.float64, 1e6), (torch.float64, 1e11)]
)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3), (3, 2)])
def test_rows_of_small_examples_are_read_beside_a_large_one(dtype, factor, shape):
    """Positions first and one example far larger: under either order of the axes the large rows fit."""

    def forward(m, x, scale):
        rows = m.first(x.transpose(0, 1).reshape(-1, 3)).tanh()
        return m.head((rows.view(x.shape[1], len(x), 5).transpose(0, 1) * scale).sum(1))

    model = Written(forward, first=nn.Linear(3, 5), head=nn.Linear(5, 2)).to(dtype)
    inputs, scale = randn(*shape, 3, dtype=dtype), torch.ones(*shape, 1, dtype=dtype)
    scale[0, 0] = factor
    true = tangent.full_kernel(tangent.jacobian(tangent.in_float64(model), (inputs.double(), scale.double())))
    small = entk_full(model, (inputs, scale))[1:, :, 1:].double() - true[1:, :, 1:]
    assert small.norm() < (1e-10 if dtype == torch.float64 else 2e-5) * true[1:, :, 1:].norm()
