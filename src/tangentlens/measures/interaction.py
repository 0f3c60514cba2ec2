"""n-gram interaction: what two words do together beyond what each does alone."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from tangentlens.errors import BadInput


def interaction(
    together: Float[Tensor, "*shape"],
    first: Float[Tensor, "*shape"],
    second: Float[Tensor, "*shape"],
    neither: Float[Tensor, "*shape"] | float = 0.0,
) -> Float[Tensor, "*shape"]:
    """s(ab) - s(a) - s(b) + s(): the second difference of scores. An additive model gives 0 for every pair."""
    return together - first - second + neither


def kernel_interaction(by_matches: Float[Tensor, "match"]) -> Float[Tensor, ""]:
    """(kappa(2) - 2 kappa(1) + kappa(0)) / kappa(2) of a window kernel by number of equal words.

    The part of the similarity of two equal bigrams that single words do not explain. Linear filters give 0, a bigram
    indicator 1; a ReLU filter of width 2 at equal deviations 0.256.
    """
    if len(by_matches) < 3:
        raise BadInput(f"a second difference needs kappa(0), kappa(1), kappa(2); got {len(by_matches)} values")
    none, one, two = by_matches[0], by_matches[1], by_matches[2]
    return (two - 2 * one + none) / two
