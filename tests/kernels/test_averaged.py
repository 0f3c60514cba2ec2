"""Where outputs share one signal at a single position, the mean over outputs is taken once, and stays exact."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks import models
from tangentlens.capture.measuring import measuring
from tangentlens.kernels import entk, entk_by_layer, entk_full, layer_moments, plan
from tangentlens.kernels.captures import Captures
from tangentlens.kernels.plan import sampled_costs


def narrow(seed: int) -> nn.Sequential:
    """Few units, so that two examples captured together may by chance leave the same units of a later layer alive."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 5)).double()


def mean_of_full(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return entk_full(model, inputs).diagonal(dim1=1, dim2=3).mean(-1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("chunk", [1, 2, 3, None])
def test_the_mean_is_that_of_the_full_kernel_however_examples_are_cut(seed: int, chunk: int | None) -> None:
    model, inputs = narrow(seed), torch.randn(9, 4, dtype=torch.float64)
    assert torch.allclose(entk(model, inputs, chunk=chunk), mean_of_full(model, inputs), rtol=1e-10, atol=1e-12)
    rows, columns = inputs[:4], inputs[4:6]
    crossed = entk_full(model, rows, columns).diagonal(dim1=1, dim2=3).mean(-1)
    assert torch.allclose(entk(model, rows, columns, chunk=chunk), crossed, rtol=1e-10, atol=1e-12)


def test_chunks_whose_outputs_weigh_one_signal_alike_are_joined_to_one_tile() -> None:
    """Small captures must not mean small products: a linear head is averaged in every model."""
    torch.manual_seed(0)
    model, inputs = models.mlp([6, 32, 4]), torch.randn(24, 6)
    with torch.no_grad(), measuring(model, inputs) as measurement:
        probe = measurement.prepared(inputs)
        costs = sampled_costs(measurement, probe, probe, "mean", True)
        captures = Captures(measurement, str, costs)
        tiles = captures.tiles(probe, 0, 24, list(measurement.wanted), 5, 24)
    assert costs.way("2.weight") == costs.way("0.weight") == "averaged"
    assert [(start, stop) for start, stop, _ in tiles] == [(0, 24)]


def test_the_plan_takes_the_mean_once_where_only_the_head_follows() -> None:
    model, inputs = narrow(0), torch.randn(40, 4, dtype=torch.float64)
    ways = {row.name: row.way for row in plan(model, inputs, reduction="mean").rows}
    assert ways["2.weight"] == "averaged"
    assert {row.way for row in plan(model, inputs).rows if row.name == "2.weight"} == {"factored"}
    layers = entk_by_layer(model, inputs)
    assert torch.allclose(sum(layers.values()), entk(model, inputs), rtol=1e-10, atol=1e-12)


def test_moments_of_a_shared_signal_are_those_of_the_jacobian() -> None:
    model, inputs = narrow(1), torch.randn(20, 4, dtype=torch.float64)
    hidden = model[:2](inputs)
    before = model[2](hidden).detach().requires_grad_()
    outputs = model[4](model[3](before))
    b = torch.stack([torch.autograd.grad(outputs[:, c].sum(), before, retain_graph=True)[0] for c in range(5)])
    expected = torch.einsum("cni,cnj->ij", b, b)
    assert torch.allclose(layer_moments(model, inputs)["2"].ptk_covariance, expected, rtol=1e-10, atol=1e-12)
