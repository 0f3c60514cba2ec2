"""Bias, interaction, negation, drift and matched targets on inputs whose answer is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tangentlens.errors import BadInput
from tangentlens.kernels.infinite_width import Deviations, mlp_coefficients, mlp_kernel, token_counts, window_kernel
from tangentlens.measures.bias import asymmetry_index, bias_ratio, disjoint, disjoint_cosine, one_signed, sign_accuracy
from tangentlens.measures.drift import drift
from tangentlens.measures.interaction import interaction, kernel_interaction
from tangentlens.measures.matched_targets import (
    matched_targets,
    medians_apart,
    share_above,
    targets_by_pmi,
    targets_by_share,
)
from tangentlens.measures.negation import negation_grid


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
def test_the_bias_ratio_of_single_words_is_the_closed_form(activation: str) -> None:
    words = [(word,) for word in range(6)]
    kernel = mlp_kernel(words, activation=activation)
    apart = disjoint(token_counts(words).to_dense())
    coefficients = mlp_coefficients(activation=activation)
    whole = coefficients.crossing + coefficients.matching
    assert bias_ratio(kernel, apart).item() == pytest.approx(coefficients.bias_ratio, abs=1e-12)
    assert disjoint_cosine(kernel, apart).item() == pytest.approx(coefficients.crossing / whole, abs=1e-12)


def test_pairs_that_share_a_word_are_not_disjoint() -> None:
    counts = token_counts([(0, 1), (1, 2), (3,)]).to_dense()
    assert disjoint(counts).tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    with pytest.raises(BadInput, match="nothing to read a bias from"):
        bias_ratio(torch.eye(2), torch.zeros(2, 2, dtype=torch.bool))


def test_asymmetry_is_odd_in_the_scores_and_blind_to_their_scale() -> None:
    up, down = torch.tensor([0.3, 0.5]), torch.tensor([-0.1, -0.2])
    index = asymmetry_index(up, down)
    torch.testing.assert_close(asymmetry_index(-down, -up), -index)
    torch.testing.assert_close(asymmetry_index(7 * up, 7 * down), index)
    assert asymmetry_index(up, -up) == 0 and asymmetry_index(up, up) == 1


def test_sign_accuracy_counts_each_side_by_itself() -> None:
    right, left = sign_accuracy(torch.tensor([1.0, -1.0, 2.0, 3.0]), torch.tensor([-1.0, 1.0]))
    assert (right.item(), left.item()) == (0.75, 0.5)
    assert one_signed(torch.tensor([1.0, 2.0, -1.0, 3.0])).item() == 0.75


@pytest.mark.parametrize("reading", [sign_accuracy, asymmetry_index])
def test_a_side_without_words_is_refused_and_not_nan(reading: Callable[..., object]) -> None:
    with pytest.raises(BadInput, match="expected words on both sides, got 0 positive and 2 negative"):
        reading(torch.zeros(0), torch.ones(2))


def test_additive_scores_do_not_interact_and_relu_filters_do() -> None:
    words = torch.randn(3, 3)
    together = words[:, :1] + words[:, 1:2]
    assert interaction(together, words[:, :1], words[:, 1:2]).abs().max() < 1e-6
    assert kernel_interaction(window_kernel(2, activation="identity")).abs() < 1e-12
    assert kernel_interaction(window_kernel(2)).item() == pytest.approx(0.256, abs=5e-4)
    assert kernel_interaction(window_kernel(3, deviations=Deviations(0.1, 0.1, 0.1))).item() > 0
    with pytest.raises(BadInput, match="got 2 values"):
        kernel_interaction(torch.ones(2))


def test_the_negation_grid_sees_that_adding_a_negative_not_turns_good_and_never_bad() -> None:
    good, bad = torch.tensor([0.5, 1.0, 2.0]), -torch.tensor([0.5, 1.0, 2.0])
    negator = -1.5
    additive = negation_grid(good, good + negator, bad, bad + negator, negator)
    assert additive.right.tolist() == pytest.approx([1, 2 / 3, 1, 0])
    torch.testing.assert_close(additive.right, additive.additive_right)
    torch.testing.assert_close(additive.score, additive.additive_score)
    flipping = negation_grid(good, -good, bad, -bad, negator)
    assert flipping.right.tolist() == [1, 1, 1, 1]
    assert flipping.additive_right.tolist() == pytest.approx([1, 2 / 3, 1, 0])
    with pytest.raises(BadInput, match="3 positive words with 2 phrases"):
        negation_grid(good, good[:2], bad, bad, 0.0)


def test_drift_says_when_constant_kernel_theory_does_not_apply() -> None:
    start = torch.eye(4)
    near = drift(start + 0.01 * torch.ones(4, 4), start)
    assert near.lazy and near.verdict.startswith("training is close to lazy")
    grown = drift(100 * start, start)
    assert grown.alignment == pytest.approx(1) and grown.change == pytest.approx(99) and grown.growth == 100
    assert not grown.lazy and grown.verdict.startswith("theory does not apply here")
    turned = drift(torch.ones(4, 4) - start, start)
    assert turned.alignment == 0 and not turned.lazy
    diverged = drift(float("nan") * start, start)
    assert not diverged.lazy and "changed by nan of its size, cosine to the start nan" in diverged.verdict
    with pytest.raises(BadInput, match="same inputs"):
        drift(start, torch.eye(3))
    with pytest.raises(BadInput, match="initial kernel is zero"):
        drift(start, 0 * start)


def _zipf_counts(words: int = 60, seed: int = 0) -> torch.Tensor:
    """Contexts by targets, frequencies as in Zipf's law and associations at random."""
    random = torch.Generator().manual_seed(seed)
    frequency = 40_000 / torch.arange(1, words + 1, dtype=torch.float64)
    strength = torch.exp(torch.randn(words, words, generator=random, dtype=torch.float64))
    return torch.poisson(torch.outer(frequency, frequency) / frequency.sum() * strength, generator=random)


def test_frequency_alone_passes_the_notebooks_choice_and_not_the_matched_one() -> None:
    counts = _zipf_counts()
    contexts = torch.arange(20)
    unigram = torch.log(counts.sum(0)).expand(20, -1)
    association = torch.log(counts + 0.5)[contexts]
    by_share = targets_by_share(counts, contexts)
    assert medians_apart(unigram, by_share) == 1
    matched = matched_targets(counts, contexts)
    assert abs(share_above(unigram, matched).mean().item() - 0.5) < 0.02
    assert share_above(association, matched).mean() > 0.95
    by_pmi = targets_by_pmi(counts, contexts)
    assert share_above(association, by_pmi).mean() > share_above(unigram, by_pmi).mean()


def test_too_few_targets_are_refused() -> None:
    with pytest.raises(BadInput, match="lower minimum="):
        matched_targets(torch.ones(6, 6), torch.arange(2), choices=5, minimum=0)
    with pytest.raises(BadInput, match="lower minimum="):
        targets_by_pmi(torch.ones(6, 6), torch.arange(2), choices=5, minimum=100)
