"""A bag of words, each word alone through one hidden layer: s(x) = v . sum_t phi(W e_t / sqrt d) / sqrt d."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels.infinite_width.documents import (
    Documents,
    as_documents,
    common_counts,
    token_counts,
    vocabulary_size,
)
from tangentlens.kernels.infinite_width.hidden_layer import UNIT, Deviations, hidden_layer_kernel, total
from tangentlens.kernels.infinite_width.quadrature import Elementwise


@dataclass(frozen=True)
class TokenCoefficients:
    """What two equal tokens share beyond any two tokens (`matching`, rho), and what any two share (`crossing`, mu)."""

    matching: float
    crossing: float

    @property
    def bias_ratio(self) -> float:
        """mu / (rho + mu), the kernel between two different words over its diagonal, as `measures.bias` reads it."""
        return self.crossing / (self.matching + self.crossing)

    @property
    def crossing_over_matching(self) -> float:
        """mu / rho: how hard every word is pushed alike, beside how hard a word is pushed by its own documents."""
        return self.crossing / self.matching


def mlp_coefficients(*, activation: str | Elementwise = "relu", deviations: Deviations = UNIT) -> TokenCoefficients:
    """mu = (E phi(u))^2 and rho = E phi^2 + s_v^2 (s_e^2 + s_w^2) E phi'^2 - mu, with u ~ N(0, s_w^2 s_e^2).

    An MLP of infinite width is logistic regression on (sqrt(rho) * counts, sqrt(mu) * document length).

    >>> round(mlp_coefficients(activation="relu").crossing_over_matching, 4)
    0.1187
    """
    same, apart = _same_and_apart(activation, deviations)
    crossing = float(total(apart))
    return TokenCoefficients(float(total(same)) - crossing, crossing)


def mlp_kernel(
    documents: Documents,
    others: Documents | None = None,
    *,
    activation: str | Elementwise = "relu",
    deviations: Deviations = UNIT,
) -> Float[Tensor, "example other"]:
    """Theta(x, x') = rho sum_w c_x(w) c_x'(w) + mu T_x T_x' (sun2023, our derivation of the limit of large width).

    >>> mlp_kernel([(0, 1)], [(0, 1), (2, 3)], activation="tanh").gt(1e-9)
    tensor([[ True, False]])
    """
    return total(mlp_kernel_by_group(documents, others, activation=activation, deviations=deviations))


def mlp_kernel_by_group(
    documents: Documents,
    others: Documents | None = None,
    *,
    activation: str | Elementwise = "relu",
    deviations: Deviations = UNIT,
) -> dict[str, Float[Tensor, "example other"]]:
    """The same kernel split over readout, hidden and embedding gradients: the whole bias is in the readout."""
    rows = as_documents(documents)
    columns = rows if others is None else as_documents(others)
    vocabulary = vocabulary_size(rows, columns)
    common = common_counts(token_counts(rows, vocabulary), token_counts(columns, vocabulary))
    length = torch.tensor([len(row) for row in rows], dtype=torch.float64)
    other_length = torch.tensor([len(row) for row in columns], dtype=torch.float64)
    lengths = torch.outer(length, other_length)
    same, apart = _same_and_apart(activation, deviations)
    return {group: (same[group] - apart[group]) * common + apart[group] * lengths for group in same}


@dataclass(frozen=True)
class MLPKernelProduct:
    """The same kernel without its matrix: `@` costs one pass over the words, so corpora of any size flow.

    >>> product = MLPKernelProduct.of([(0, 1), (2,)])
    >>> torch.allclose(product @ torch.eye(2, dtype=torch.float64), mlp_kernel([(0, 1), (2,)]))
    True
    """

    counts: Float[Tensor, "example token"]
    other_counts: Float[Tensor, "other token"]
    coefficients: TokenCoefficients

    @classmethod
    def of(
        cls,
        documents: Documents,
        others: Documents | None = None,
        *,
        activation: str | Elementwise = "relu",
        deviations: Deviations = UNIT,
    ) -> MLPKernelProduct:
        rows = as_documents(documents)
        columns = rows if others is None else as_documents(others)
        vocabulary = vocabulary_size(rows, columns)
        coefficients = mlp_coefficients(activation=activation, deviations=deviations)
        return cls(token_counts(rows, vocabulary), token_counts(columns, vocabulary), coefficients)

    @property
    def shape(self) -> tuple[int, int]:
        return self.counts.shape[0], self.other_counts.shape[0]

    def __matmul__(self, block: Float[Tensor, "other column"]) -> Float[Tensor, "example column"]:
        words = torch.sparse.mm(self.other_counts.T, block)
        alike = torch.sparse.mm(self.counts, words.sum(0).expand_as(words))
        return self.coefficients.matching * torch.sparse.mm(self.counts, words) + self.coefficients.crossing * alike


def _same_and_apart(
    activation: str | Elementwise, deviations: Deviations
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    one = torch.ones((), dtype=torch.float64)
    same = hidden_layer_kernel(one, one, one, activation=activation, deviations=deviations)
    apart = hidden_layer_kernel(one, one, 0 * one, activation=activation, deviations=deviations)
    return same, apart
