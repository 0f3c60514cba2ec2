from __future__ import annotations

import pytest
import torch
from scipy.stats import ks_2samp
from torch import nn

from tangentlens.kernels import layer_moments
from tangentlens.measures.alignment import ansatz_correlation
from tangentlens.measures.alignment_null import ansatz, random_basis_null
from tangentlens.measures.alignment_turns import (
    MODES,
    Turns,
    in_random_basis,
    random_frame,
    random_overlaps,
    sampled_null,
    spectrum_of,
)


def layer(
    units: int, width: int, decay: float, kernel_decay: float, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(units, width, generator=generator, dtype=torch.float64)
    gradients = torch.randn(2 * units, units, generator=generator, dtype=torch.float64)
    weight = weight * (1 + torch.arange(width).double()) ** -decay + 0.1 / units**0.5
    gradients = gradients * (1 + torch.arange(units).double()) ** -kernel_decay
    return weight, gradients.T @ gradients


def by_turning_the_kernel(weight: torch.Tensor, kernel: torch.Tensor, centering: str, turns: int) -> torch.Tensor:
    """The correlation with K really replaced, turn by turn."""
    turned = (in_random_basis(kernel, seed=seed) for seed in range(turns))
    return torch.stack([ansatz_correlation(weight, kernel, centering=centering) for kernel in turned])


@pytest.mark.parametrize(
    ("units", "width", "decay", "kernel_decay"),
    [
        (12, 30, 1, 0.5),  # drawn whole
        (30, 12, 1, 0.5),
        (90, 80, 0.5, 0.5),
        (100, 30, 1, 1),
        (100, 300, 0, 1),
        (280, 300, 2, 0.5),  # a rest on both sides, leading modes by iteration
        (300, 280, 0.5, 1),
    ],
)
@pytest.mark.parametrize("centering", ["none", "entries"])
def test_sampled_values_have_the_distribution_of_turned_kernels(
    units: int, width: int, decay: float, kernel_decay: float, centering: str
) -> None:
    weight, kernel = layer(units, width, decay, kernel_decay)
    turns = 200 if units < 200 else 60
    turned = by_turning_the_kernel(weight, kernel, centering, turns)
    sampled = sampled_null(weight, Turns(kernel, draws=2000), centering=centering)
    distance = ks_2samp(sampled, turned).statistic
    assert distance < 1.7 * (1 / turns + 1 / 2000) ** 0.5  # exceeded by equal laws in 1 case of 160
    assert abs(sampled.mean() - turned.mean()) < 3.5 * turned.std() / turns**0.5


def test_a_corner_of_random_overlaps_is_that_of_random_frames() -> None:
    generator = torch.Generator().manual_seed(0)
    for units, rows, columns in ((9, 3, 4), (9, 6, 7), (5, 5, 5)):  # a Wishart remainder, a thin one, none
        drawn = random_overlaps(units, rows, columns, 4000, generator)
        frames = torch.stack([random_frame(units, rows, generator)[:columns].T for _ in range(4000)])
        for power in (2, 4):
            assert (drawn**power).mean((0, 1, 2)) == pytest.approx((frames**power).mean((0, 1, 2)).item(), rel=0.03)
        products = [
            (found[:, 0, 0] * found[:, 1, 1] * found[:, 0, 1] * found[:, 1, 0]).mean() for found in (drawn, frames)
        ]
        assert abs(products[0] - products[1]) < 0.15 * (1 / units) ** 2
    whole = random_overlaps(5, 5, 5, 10, generator)
    assert torch.allclose(whole @ whole.mT, torch.eye(5, dtype=torch.float64).expand(10, 5, 5), atol=1e-8)


@pytest.mark.parametrize("units", [40, 200, 300])
def test_a_spectrum_keeps_its_traces_whatever_it_leaves_to_the_rest(units: int) -> None:
    _, kernel = layer(units, 20, 0, 0.5)
    found, vectors = spectrum_of(kernel, units)
    assert len(found.leading) == (units if units <= 2 * MODES else MODES) == vectors.shape[1]
    assert found.trace == pytest.approx(kernel.trace().item(), rel=1e-10)
    assert found.square == pytest.approx(kernel.square().sum().item(), rel=1e-10)
    true = torch.linalg.eigvalsh(kernel).flip(0)[: len(found.leading)]
    assert torch.allclose(found.leading[:8], true[:8], rtol=1e-3)


def test_a_random_basis_keeps_the_eigenvalues_and_forgets_the_vectors() -> None:
    _, kernel = layer(40, 30, 1, 0.5)
    turned = in_random_basis(kernel)
    assert torch.allclose(torch.linalg.eigvalsh(turned), torch.linalg.eigvalsh(kernel), atol=1e-8 * kernel.norm())
    assert (turned - kernel).norm() > 0.1 * kernel.norm()
    assert torch.equal(turned, in_random_basis(kernel)) and not torch.equal(turned, in_random_basis(kernel, seed=1))


def change_in_training(units: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """W - W_0 and K of a hidden layer after twenty steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, units), nn.ReLU(), nn.Linear(units, 1))
    inputs = torch.randn(200, 20)
    targets = inputs[:, :1] * inputs[:, 1:2]
    initial, optimizer = model[2].weight.detach().clone(), torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
    moments = layer_moments(model, inputs, layers=["2"])["2"]
    return (moments.weight - initial).detach(), moments.ptk_covariance


def of_rank_two(units: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(units, 2, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.3])
    weight = columns @ torch.randn(2, width, generator=generator, dtype=torch.float64)
    return weight, torch.diag((1 + torch.arange(units).double()) ** -1.0)


@pytest.mark.parametrize("made", [change_in_training, of_rank_two])
@pytest.mark.parametrize("shape", [(300, 280), (64, 32)])
def test_a_layer_at_chance_is_called_above_it_in_one_case_of_twenty(made, shape: tuple[int, int]) -> None:  # noqa: ANN001
    weight, kernel = made(*shape)
    cases = 60 if shape[0] == 300 else 200
    found = [ansatz(weight, in_random_basis(kernel, seed=case), draws=39, seed=case) for case in range(cases)]
    called = sum(one.above_chance for one in found)
    assert called <= cases / 20 + 3 * (cases / 20) ** 0.5
    if shape == (300, 280) and made is of_rank_two:  # what the analytic level would have called aligned
        analytic = random_basis_null(weight, kernel)
        assert sum(bool(one.value > analytic + 0.25 * (1 - analytic)) for one in found) > 0.9 * cases


def test_other_seeds_draw_other_bases_and_the_same_seed_the_same() -> None:
    weight, kernel = layer(100, 30, 1, 1)
    one, same, other = (ansatz(weight, kernel, draws=39, seed=seed).null for seed in (1, 1, 2))
    assert one == same != other and abs(one - other) < 0.15


def test_a_negative_number_of_draws_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 0, got -1"):
        Turns(torch.eye(3), draws=-1)
