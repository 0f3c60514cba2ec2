"""Gaussian expectations: closed forms against quadrature, quadrature against sampling and against known integrals."""

from __future__ import annotations

from math import pi

import pytest
import torch

from tangentlens.kernels.infinite_width import ACTIVATIONS, dual_activation, gaussian_mean, gaussian_pair_mean
from tests.reference.sun2023 import sampled_pair_mean

VARIANCE = torch.tensor([0.01, 1.0, 4.0, 0.3, 2.0], dtype=torch.float64)
OTHER = torch.tensor([0.01, 2.0, 1.0, 9.0, 2.0], dtype=torch.float64)
COVARIANCE = torch.tensor([0.01, -1.0, 1.9, 0.0, -2.0], dtype=torch.float64)


@pytest.mark.parametrize("name", ["identity", "relu", "gelu", "erf"])
def test_closed_forms_agree_with_quadrature(name: str) -> None:
    exact, quadrature = dual_activation(name), dual_activation(name, closed_form=False)
    assert (exact.how, quadrature.how) == ("exact", "quadrature")
    torch.testing.assert_close(exact.mean(VARIANCE), quadrature.mean(VARIANCE), rtol=1e-10, atol=1e-12)
    triple = (VARIANCE, OTHER, COVARIANCE)
    torch.testing.assert_close(exact.product(*triple), quadrature.product(*triple), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(exact.slope_product(*triple), quadrature.slope_product(*triple), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("name", ["tanh", "silu", "sigmoid", "gelu"])
def test_quadrature_agrees_with_sampling(name: str) -> None:
    for v, w, c in ((1.0, 2.0, -1.0), (0.5, 0.5, 0.5), (3.0, 1.0, 1.5)):
        seen, error = sampled_pair_mean(ACTIVATIONS[name], v, w, c, 200_000)
        exact = dual_activation(name).product(*(torch.tensor(x, dtype=torch.float64) for x in (v, w, c)))
        assert abs(float(exact) - seen) < 4 * error + 1e-12


@pytest.mark.parametrize("name", ["relu", "gelu", "tanh", "silu"])
def test_the_slope_product_is_the_derivative_of_the_product_in_the_covariance(name: str) -> None:
    dual = dual_activation(name)
    v, w, c = (torch.tensor([x], dtype=torch.float64) for x in (1.3, 0.7, 0.4))
    by_difference = (dual.product(v, w, c + 1e-5) - dual.product(v, w, c - 1e-5)) / 2e-5
    torch.testing.assert_close(dual.slope_product(v, w, c), by_difference, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ["relu", "gelu", "tanh", "silu", "sigmoid"])
def test_independent_units_multiply_their_means(name: str) -> None:
    dual = dual_activation(name)
    v, w = torch.tensor(1.5, dtype=torch.float64), torch.tensor(0.4, dtype=torch.float64)
    torch.testing.assert_close(dual.product(v, w, 0 * v), dual.mean(v) * dual.mean(w), rtol=1e-10, atol=1e-12)


def test_a_leaky_relu_given_as_a_function_is_exact_to_rounding_in_spite_of_its_kink() -> None:
    leaky = torch.nn.LeakyReLU(0.2)
    one = torch.ones((), dtype=torch.float64)
    assert gaussian_mean(leaky, one).item() == pytest.approx(0.8 / (2 * pi) ** 0.5, rel=1e-12)
    correlation = torch.tensor(0.3, dtype=torch.float64)
    relu = dual_activation("relu")
    # leaky(u) = 0.8 relu(u) + 0.2 u, and E relu(u) z = c / 2
    expected = 0.64 * relu.product(one, one, correlation) + (0.16 + 0.04) * correlation
    assert gaussian_pair_mean(leaky, leaky, one, one, correlation).item() == pytest.approx(expected.item(), rel=1e-11)


def test_odd_activations_have_no_mean_and_hence_no_bias() -> None:
    for name in ("tanh", "erf", "identity"):
        assert dual_activation(name).mean(VARIANCE).abs().max() < 1e-14


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown activation 'rellu'; known by name: .*relu"):
        dual_activation("rellu")


def test_a_kink_away_from_zero_is_refused_and_not_integrated_wrongly() -> None:
    one, some = torch.ones((), dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    hard = dual_activation(torch.nn.Hardtanh())
    with pytest.raises(ValueError, match="got the slope of Hardtanh, whose integral moves by .* at variance 1;"):
        hard.slope_product(one, one, some)
    with pytest.raises(ValueError, match="smooth on either side of zero"):
        gaussian_mean(lambda u: (u > 1).double(), one)


@pytest.mark.parametrize("variance", [1.0, 100.0])
def test_a_wide_variance_raises_the_order_until_the_integral_stands(variance: float) -> None:
    wide = torch.tensor(variance, dtype=torch.float64)
    slope = lambda x: 1 / torch.cosh(x) ** 2  # noqa: E731
    grid = torch.linspace(-40, 40, 400_001, dtype=torch.float64)
    expected = torch.trapezoid(slope(grid) ** 2 * torch.exp(-(grid**2) / (2 * wide)), grid) / (2 * pi * wide) ** 0.5
    assert dual_activation("tanh").slope_product(wide, wide, wide).item() == pytest.approx(expected.item(), rel=2e-6)


def test_a_variance_too_wide_for_the_order_is_refused() -> None:
    wide = torch.tensor(1e6, dtype=torch.float64)
    with pytest.raises(ValueError, match="at variance 1e[+]06"):
        dual_activation("tanh").slope_product(wide, wide, wide)
