"""The top of a model's spectrum by every route, on the zoo, against the brute-force Jacobian."""

from __future__ import annotations

import inspect

import pytest
import torch

from tangentlens.kernels import entk_full, spectrum
from tangentlens.kernels.routes import chosen_route
from tangentlens.kernels.top_spectrum import top_spectrum
from tests.zoo import BY_NAME, dense, embedded, huggingface, shared
from tests.zoo.entry import Entry
from tests.zoo.known import known_jacobian, measured

MODES = 4


def entries(*families: object) -> list[str]:
    return [each.name for family in families for each in vars(family).values() if isinstance(each, Entry)]


# models of other people's libraries are made of what is in these families, and take ten times as long
SMALL = sorted(set(BY_NAME) - set(entries(huggingface)))


@pytest.mark.parametrize("name", SMALL)
def test_products_give_the_head_of_the_exact_spectrum(name):
    agrees_with_the_jacobian(name, "krylov")


@pytest.mark.parametrize("name", entries(dense, embedded, shared))
def test_the_smaller_side_gives_the_head_of_the_exact_spectrum(name):
    rows, parameters = jacobian_of(name).shape
    agrees_with_the_jacobian(name, "dual" if parameters < 40 * rows else "dense")


@pytest.mark.parametrize("route", ["dense", "dual", "krylov"])
@pytest.mark.parametrize("name", ["superposition", "tied_autoencoder", "mlp_tanh"])
def test_every_route_gives_the_same_modes(name, route):
    agrees_with_the_jacobian(name, route)


def jacobian_of(name: str) -> torch.Tensor:
    return torch.cat([each.flatten(0, 1) for each in known_jacobian(name).values()], 1)


def agrees_with_the_jacobian(name: str, route: str) -> None:
    jacobian = jacobian_of(name)
    modes = min(MODES, *jacobian.shape)
    exact = torch.linalg.svdvals(jacobian)[:modes].square()
    model, inputs, options = measured(name, torch.float64)
    found = top_spectrum(model, inputs, modes=modes, method=route, **options)
    assert route in found.method and bool(found.converged.all()), found
    torch.testing.assert_close(found.eigenvalues, exact, rtol=0, atol=1e-8 * float(exact[0]))
    images = jacobian @ (jacobian.T @ found.eigenvectors)
    residuals = (images - found.eigenvectors * found.eigenvalues).norm(dim=0) / exact[0]
    assert float(residuals.max()) < 1e-8


def test_modes_of_the_dual_are_orthonormal_where_eigenvalues_are_tiny():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 4)).double()
    inputs = torch.randn(40, 3, dtype=torch.float64) * torch.tensor([1.0, 1e-3, 1e-6], dtype=torch.float64)
    found = top_spectrum(model, inputs, modes=20, method="dual")
    assert float(found.eigenvalues[-1] / found.eigenvalues[0]) < 1e-12
    torch.testing.assert_close(found.eigenvectors.T @ found.eigenvectors, torch.eye(20, dtype=torch.float64))


def test_the_route_is_the_smaller_side_while_it_is_small_and_products_beyond():
    assert chosen_route(rows=100, parameters=10_000, modes=5) == "dense"
    assert chosen_route(rows=25_000, parameters=2_050, modes=80) == "dual"
    assert chosen_route(rows=25_000, parameters=60_000, modes=80) == "krylov"
    assert chosen_route(rows=6_000, parameters=60_000, modes=3_000) == "dense"


def test_a_chosen_part_of_the_parameters_has_its_own_spectrum():
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    inputs = torch.randn(6, 3)
    found = top_spectrum(model, inputs, modes=3, parameters="2.*")
    whole = spectrum(entk_full(model, inputs, parameters="2.*", dtype=torch.float64), 3)
    torch.testing.assert_close(found.eigenvalues, whole.eigenvalues)


def test_more_modes_than_the_kernel_can_have_are_refused():
    with pytest.raises(ValueError, match="at most 6 modes"):
        top_spectrum(torch.nn.Linear(3, 2, bias=False), torch.randn(10, 3), modes=7)


def test_an_unknown_method_is_refused_by_name():
    unchecked = inspect.unwrap(top_spectrum)  # the tests check types before the function can
    with pytest.raises(ValueError, match="'dense', 'dual', 'krylov'"):
        unchecked(torch.nn.Linear(3, 2), torch.randn(4, 3), modes=2, method="magic")
