"""Feature bias: the push every word gets alike, whatever documents it stands in."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tangentlens.errors import BadInput


def disjoint(
    counts: Float[Tensor, "example token"], other_counts: Float[Tensor, "other token"] | None = None
) -> Bool[Tensor, "example other"]:
    """Which pairs of documents share no word."""
    here = (counts > 0).double()
    there = here if other_counts is None else (other_counts > 0).double()
    return here @ there.T == 0


def bias_ratio(kernel: Float[Tensor, "example example"], apart: Bool[Tensor, "example example"]) -> Float[Tensor, ""]:
    """Mean kernel between token-disjoint inputs over the mean diagonal.

    On single words of an infinitely wide MLP it is mu / (rho + mu), mu = (E phi)^2: `mlp_coefficients(...).bias_ratio`.
    No bias: 0.
    Initial weights are shared by all pairs, so the ratio of one network scatters about its mean: average over seeds.

    >>> bias_ratio(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), ~torch.eye(2, dtype=torch.bool)).item()
    0.5
    """
    if not apart.any():
        raise BadInput("every pair of inputs shares a word, so there is nothing to read a bias from; use single words")
    return kernel[apart].mean() / kernel.diagonal().mean()


def disjoint_cosine(
    kernel: Float[Tensor, "example example"], apart: Bool[Tensor, "example example"]
) -> Float[Tensor, ""]:
    """Mean cosine in the kernel's feature space between token-disjoint inputs: comparable across lengths of text."""
    if not apart.any():
        raise BadInput("every pair of inputs shares a word, so there is nothing to read a bias from; use single words")
    length = kernel.diagonal().sqrt()
    return (kernel / torch.outer(length, length))[apart].mean()


def asymmetry_index(positive: Float[Tensor, "token"], negative: Float[Tensor, "other_token"]) -> Float[Tensor, ""]:
    """(p + n) / (|p| + |n|) of the mean scores of positive and negative words: 0 balanced, 1 all pushed up, -1 down.

    >>> asymmetry_index(torch.tensor([0.5, 0.7]), torch.tensor([-0.2, -0.4])).item()
    0.333...
    """
    _both_sides(positive, negative)
    p, n = positive.mean(), negative.mean()
    return (p + n) / (p.abs() + n.abs())


def sign_accuracy(
    positive: Float[Tensor, "token"], negative: Float[Tensor, "other_token"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Share of positive words scored above zero, and of negative words scored below.

    Their mean is the balanced accuracy: 1/2 for any scorer that gives all words one sign, however unequal the sides.
    """
    _both_sides(positive, negative)
    return (positive > 0).double().mean(), (negative < 0).double().mean()


def _both_sides(positive: Tensor, negative: Tensor) -> None:
    if not len(positive) or not len(negative):
        raise BadInput(
            f"expected words on both sides, got {len(positive)} positive and {len(negative)} negative; "
            "score more words, or lower rate= and minimum= of the polarity lists"
        )


def one_signed(readout: Float[Tensor, "unit"]) -> Float[Tensor, ""]:
    """Share of readout weights above zero: ReLU units behind a one-signed readout push one way only. Chance: 1/2."""
    return (readout > 0).double().mean()
