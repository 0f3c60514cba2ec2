"""Gradients held as factors and formed slice by slice, chunks joined to tiles: the same kernel, less memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tangentlens.capture.factors import Formed, Outer
from tangentlens.kernels import blockwise, entk, entk_full, plan, slices
from tangentlens.kernels.blocks import Gradients
from tangentlens.kernels.joining import Joining
from tangentlens.kernels.separable import Separable, separated
from tests.reference import tangent

SHAPE = torch.Size((6, 5))


def images() -> tuple[nn.Module, torch.Tensor]:
    """Ten outputs: the factors of the later convolutions are smaller than their gradients."""
    layers = [nn.Conv2d(2, 8, 3), nn.Tanh(), nn.Conv2d(8, 12, 3), nn.Tanh(), nn.Conv2d(12, 12, 2), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * 16, 10)).double()
    return model, torch.randn(7, 2, 9, 9, dtype=torch.float64)


def outer(examples: int, positions: int) -> Outer:
    return Outer(
        torch.randn(examples, positions, 1, 5, dtype=torch.float64),
        torch.randn(examples, 3, positions, 1, 6, dtype=torch.float64),
    )


def test_the_plan_slices_what_is_smaller_as_factors():
    model, x = images()
    ways = {row.name: row.way for row in plan(model, x).rows}
    assert ways["2.weight"] == ways["4.weight"] == "sliced" and ways["0.weight"] == "formed"


@pytest.mark.parametrize("chunk", [None, 1, 3])
@pytest.mark.parametrize("narrowest", [1, 40, 4096])
def test_slices_of_any_width_sum_to_the_kernel(monkeypatch, chunk, narrowest):
    monkeypatch.setattr(slices, "_NARROWEST", narrowest)
    monkeypatch.setattr(blockwise, "_SLICE", 1)
    monkeypatch.setitem(blockwise._TILE_ROWS, "cpu", 40)  # several tiles, the last one smaller
    model, x = images()
    jacobian = tangent.jacobian(model, x)
    full, mean = tangent.full_kernel(jacobian), tangent.kernel(jacobian)
    assert (entk_full(model, x, chunk=chunk) - full).norm() < 1e-12 * full.norm()
    assert (entk(model, x, chunk=chunk) - mean).norm() < 1e-12 * mean.norm()
    cross = entk_full(model, x, x[2:5], chunk=chunk)
    assert (cross - full[:, :, 2:5]).norm() < 1e-12 * full.norm()


@pytest.mark.parametrize("positions", [(2, 2), (3, 1), (1, 3)])
def test_chunks_with_more_or_fewer_live_positions_join(positions):
    first, second = (outer(2, count) for count in positions)
    joining = Joining(4)
    for chunk in (first, second):
        new = {"w": Gradients("w", SHAPE, [chunk])}
        assert joining.takes(new)
        joining.add(new, 2)
    (together,) = joining.gradients()["w"].factors
    apart = torch.cat([first.formed(SHAPE).gradient, second.formed(SHAPE).gradient])
    assert torch.allclose(together.formed(SHAPE).gradient, apart)


def test_a_chunk_read_in_another_form_is_not_joined():
    joining = Joining(4)
    joining.add({"w": Gradients("w", SHAPE, [outer(2, 2)])}, 2)
    assert not joining.takes({"w": Gradients("w", SHAPE, [Formed(outer(2, 2).formed(SHAPE).gradient)])})
    assert not joining.takes({"v": Gradients("v", SHAPE, [outer(2, 2)])})


def shared(weight: torch.Tensor, examples: int, dead: int) -> Separable:
    signal = torch.randn(examples, 1, 4, 6, dtype=torch.float64)
    signal[..., dead] = 0
    a = torch.randn(examples, 4, 1, 5, dtype=torch.float64)
    found = separated(Outer(a, (signal * weight[None, :, None])[:, :, :, None]))
    assert found is not None
    return found


def gradient(part: Separable) -> torch.Tensor:
    return part.signal[:, None] * part.weight[None, :, :, None]


def test_weights_found_up_to_their_sign_and_dead_units_join():
    weight = torch.randn(3, 6, dtype=torch.float64)
    parts = [shared(weight, 2, dead) for dead in (0, 1, 2)]
    parts[1] = Separable(-parts[1].signal, -parts[1].weight)
    expected = torch.cat([gradient(part) for part in parts])
    joining = Joining(6)
    for part in parts:
        new = {"w": Gradients("w", SHAPE, [part])}
        assert joining.takes(new)
        joining.add(new, 2)
    (together,) = joining.gradients()["w"].factors
    assert isinstance(together, Separable) and torch.allclose(gradient(together), expected)


def test_chunks_whose_outputs_weigh_differently_are_not_joined():
    joining = Joining(4)
    joining.add({"w": Gradients("w", SHAPE, [shared(torch.randn(3, 6, dtype=torch.float64), 2, 0)])}, 2)
    assert not joining.takes({"w": Gradients("w", SHAPE, [shared(torch.randn(3, 6, dtype=torch.float64), 2, 0)])})
