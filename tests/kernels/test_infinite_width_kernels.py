"""Closed-form kernels: known ratios, invariances, and the kernels of finite networks as their width grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tangentlens.kernels.infinite_width import (
    Deviations,
    attention_kernel,
    attention_kernel_by_group,
    attention_mlp_kernel,
    attention_mlp_kernel_by_group,
    cnn_kernel,
    cnn_kernel_by_group,
    linear_recurrence_kernel,
    linear_recurrence_kernel_by_group,
    matrix_vector_kernel,
    matrix_vector_kernel_by_group,
    mlp_coefficients,
    mlp_kernel,
    mlp_kernel_by_group,
    window_kernel,
    with_begin,
)
from tangentlens.studies.sun2023 import models
from tests.reference.sun2023 import kernel_by_group, over_seeds

DOCUMENTS = torch.tensor([[1, 2, 3, 3, 4], [3, 5, 1, 2, 4]])
UNEVEN = Deviations(0.8, 0.9, 0.7, 0.6)
WORDS = 6


def _limit_free(kind: type[nn.Module], **more: object) -> Callable[[int, int], nn.Module]:
    return lambda width, seed: kind(WORDS, width, seed=seed, deviations=UNEVEN, **more)


def _after_begin(documents: Tensor) -> list[Tensor]:
    return with_begin(documents, WORDS)


CASES: dict[str, tuple[Callable[[int, int], nn.Module], Callable[[Tensor], dict[str, Tensor]]]] = {
    "mlp relu": (_limit_free(models.TokenMLP), lambda d: mlp_kernel_by_group(d, deviations=UNEVEN)),
    "mlp gelu": (
        _limit_free(models.TokenMLP, activation="gelu"),
        lambda d: mlp_kernel_by_group(d, activation="gelu", deviations=UNEVEN),
    ),
    "mlp silu": (
        _limit_free(models.TokenMLP, activation="silu"),
        lambda d: mlp_kernel_by_group(d, activation="silu", deviations=UNEVEN),
    ),
    "mlp tanh": (
        _limit_free(models.TokenMLP, activation="tanh"),
        lambda d: mlp_kernel_by_group(d, activation="tanh", deviations=UNEVEN),
    ),
    "cnn": (_limit_free(models.TokenCNN, window=2), lambda d: cnn_kernel_by_group(d, deviations=UNEVEN)),
    "cnn, three words, no padding": (
        _limit_free(models.TokenCNN, window=3, padding=0, activation="gelu"),
        lambda d: cnn_kernel_by_group(d, window=3, padding=0, activation="gelu", deviations=UNEVEN),
    ),
    "attention": (
        _limit_free(models.SelfAttention, per_width=True, positions=False),
        lambda d: attention_kernel_by_group(d, deviations=UNEVEN),
    ),
    "attention and mlp": (
        _limit_free(models.SelfAttentionMLP, per_width=True, positions=False),
        lambda d: attention_mlp_kernel_by_group(d, deviations=UNEVEN),
    ),
    "matrix-vector": (
        _limit_free(models.MatrixVector),
        lambda d: matrix_vector_kernel_by_group(_after_begin(d), deviations=UNEVEN),
    ),
    "diagonal matrix-vector": (
        _limit_free(models.DiagonalMatrixVector),
        lambda d: matrix_vector_kernel_by_group(_after_begin(d), form="diagonal", deviations=UNEVEN),
    ),
    "linear recurrence": (
        _limit_free(models.LinearRecurrence),
        lambda d: linear_recurrence_kernel_by_group(d, deviations=UNEVEN),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_parameter_group_of_a_wide_network_has_the_closed_form_kernel(name: str) -> None:
    build, theory = CASES[name]
    width, seeds = 96, 16
    mean, error = over_seeds(lambda seed: build(width, seed), list(DOCUMENTS), seeds)
    groups = theory(DOCUMENTS)
    assert set(groups) == set(mean)
    for group, exact in groups.items():
        scale = exact.diagonal().mean()
        # entries share their seeds and stray together: 3 standard errors, plus the 1/width bias of a finite network
        away = (mean[group] - exact).abs()
        assert (away <= 3 * error[group] + 4 / width * scale).all(), (group, mean[group] / exact)


@pytest.mark.parametrize("name", CASES)
def test_the_error_of_one_network_shrinks_like_the_root_of_its_width(name: str) -> None:
    build, theory = CASES[name]
    exact = torch.stack(list(theory(DOCUMENTS).values())).sum(0)
    errors = []
    for width in (16, 64, 256) if name != "matrix-vector" else (8, 32, 128):
        seen = [
            sum(kernel_by_group(build(width, seed).double().eval(), list(DOCUMENTS)).values()) for seed in range(12)
        ]
        errors.append(float(torch.stack([(k - exact).norm() / exact.norm() for k in seen]).square().mean().sqrt()))
    # 16 times the width: 4 times the accuracy, within the scatter of 12 seeds
    assert 2.2 < errors[0] / errors[2] < 8
    assert errors[0] > errors[1] > errors[2]


BIAS = {
    # activation: mu/rho at (.1,.1,.01), (.1,.1,.1), (.1,.1,1), (1,1,.1), (1,1,1) for (embedding, hidden, readout)
    "relu": (0.454, 0.119, 0.0016, 0.454, 0.119),
    "gelu": (6.2e-5, 2.1e-5, 3.2e-7, 0.224, 0.063),
    "silu": (2.5e-5, 8.3e-6, 1.2e-7, 0.133, 0.040),
    "sigmoid": (3.9e4, 1.3e4, 199, 5.65, 1.88),
}


@pytest.mark.parametrize("activation", BIAS)
def test_bias_ratios_are_those_of_the_independent_derivation(activation: str) -> None:
    settings = [Deviations(*s) for s in ((0.1, 0.1, 0.01), (0.1, 0.1, 0.1), (0.1, 0.1, 1.0), (1.0, 1.0, 0.1))]
    for deviations, expected in zip([*settings, Deviations()], BIAS[activation]):
        ratio = mlp_coefficients(activation=activation, deviations=deviations).crossing_over_matching
        assert ratio == pytest.approx(expected, rel=0.05)  # the derivation gives two digits


def test_an_odd_activation_has_no_bias_at_any_variance() -> None:
    assert abs(mlp_coefficients(activation="tanh", deviations=Deviations(3.0, 2.0, 1.0)).bias_ratio) < 1e-12


def test_window_kernels_have_the_derived_profile() -> None:
    two, three = window_kernel(2), window_kernel(3)
    torch.testing.assert_close(two / two[-1], two.new_tensor([0.106, 0.425, 1.0]), rtol=0, atol=5e-4)
    torch.testing.assert_close(three / three[-1], three.new_tensor([0.106, 0.303, 0.567, 1.0]), rtol=0, atol=5e-4)
    linear = window_kernel(3, activation="identity")
    torch.testing.assert_close(linear, linear[-1] * torch.arange(4) / 3)


def _cosine(kernel: Tensor) -> float:
    return float(kernel[0, 1] / (kernel[0, 0] * kernel[1, 1]).sqrt())


def test_reversed_text_is_the_same_to_a_bag_of_words_and_nothing_alike_to_bigrams() -> None:
    pair = [(0, 1, 2, 3), (3, 2, 1, 0)]
    assert _cosine(mlp_kernel(pair)) == pytest.approx(1)
    assert _cosine(attention_kernel(pair)) == pytest.approx(1)
    assert _cosine(cnn_kernel(pair, window=2, padding=0)) == pytest.approx(0.614, abs=5e-4)
    assert _cosine(matrix_vector_kernel(pair)) == 0
    assert _cosine(linear_recurrence_kernel(pair)) == 0


def test_only_a_positive_mean_activation_links_disjoint_texts() -> None:
    pair, small = [(0, 1, 2), (3, 4, 5)], Deviations(0.1, 0.1, 0.1)
    assert _cosine(mlp_kernel(pair)) == pytest.approx(0.263, abs=5e-4)
    assert _cosine(cnn_kernel(pair, padding=0)) == pytest.approx(0.192, abs=5e-4)
    assert _cosine(attention_mlp_kernel(pair, deviations=small)) == pytest.approx(0.107, abs=1e-3)
    assert _cosine(mlp_kernel(pair, activation="gelu", deviations=small)) < 1e-4
    for without in (mlp_kernel(pair, activation="tanh"), attention_kernel(pair), matrix_vector_kernel(pair)):
        assert abs(_cosine(without)) < 1e-12


def test_the_bias_lives_in_the_readout_gradient() -> None:
    groups = mlp_kernel_by_group([(0, 1), (2, 3)])
    assert groups["readout"][0, 1] > 0.1
    assert groups["hidden"][0, 1] == groups["embedding"][0, 1] == 0


@pytest.mark.parametrize(
    "kernel",
    [mlp_kernel, cnn_kernel, attention_kernel, attention_mlp_kernel, matrix_vector_kernel, linear_recurrence_kernel],
)
def test_columns_of_other_documents_are_a_block_of_the_whole(kernel: Callable[..., Tensor]) -> None:
    documents = [(0, 1, 2, 2), (3, 1), (2, 2, 0), (4,), (1, 2, 0, 3, 3)]
    whole = kernel(documents)
    torch.testing.assert_close(kernel(documents[:2], documents[2:]), whole[:2, 2:])
    torch.testing.assert_close(whole, whole.T)
    assert torch.linalg.eigvalsh(whole).min() > -1e-9


def test_equal_words_attend_to_each_other_more_when_their_logit_grows() -> None:
    pair = [(0, 0, 1), (0, 1, 1)]
    flat, sharp = attention_kernel(pair, same_token_logit=0.0), attention_kernel(pair, same_token_logit=9.0)
    assert flat[0, 0] == pytest.approx(2 * (4 + 1))  # counts (2, 1), both gradients
    assert sharp[0, 0] == pytest.approx(2 * (2**2 + 1), rel=1e-3)  # each word attends to its own kind alone


def test_documents_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ValueError, match="document 1 is empty"):
        mlp_kernel([(0, 1), ()])
    with pytest.raises(ValueError, match="token number -1"):
        mlp_kernel([(0, -1)])
    with pytest.raises(ValueError, match="no window of 3 fits; pad by at least 1"):
        cnn_kernel([(0, 1)], window=3, padding=0)
    with pytest.raises(ValueError, match="at least 1 word and padding of at least 0, got 0 and 1"):
        cnn_kernel([(0, 1)], window=0, padding=1)
    with pytest.raises(ValueError, match="got 2 and -1"):
        cnn_kernel([(0, 1)], window=2, padding=-1)
