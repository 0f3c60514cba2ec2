"""What the ansatz correlation would be by chance: the same two spectra, the kernel's eigenvectors turned at random.

Without it a correlation cannot be read: a concentrated weight spectrum alone puts the cosine near 0.8, training or not.
There are two ways to the chance level. The analytic one costs nothing and is the mean over turns where both spectra are
spread over many directions; where a few dominate, as after training, it lies below that mean (by 0.2 at worst), and
only turning the kernel and measuring again is right. So the null is the mean of the sampled turns, and the
analytic value stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.alignment import (
    Centering,
    ansatz_correlation,
    correlation_of,
    moments_in_singular_basis,
    positive_power,
    singular_basis,
)


@dataclass(frozen=True)
class Correlation:
    """A correlation beside its chance level: the mean over random turns, the middle 90 % of them, the analytic value.

    Where nothing was drawn, the null is the analytic value and the band is nan.
    """

    value: Float[Tensor, ""]
    null: Float[Tensor, ""]
    low: Float[Tensor, ""]
    high: Float[Tensor, ""]
    analytic_null: Float[Tensor, ""]

    @property
    def adjusted(self) -> Float[Tensor, ""]:
        """The value rescaled so that chance is 0 and full agreement 1; below chance it is negative."""
        return adjusted(self.value, self.null)

    def __str__(self) -> str:
        return (
            f"{self.value:.3f} (chance {self.null:.3f}, 90 % within {self.low:.3f} .. {self.high:.3f}, "
            f"adjusted {self.adjusted:+.3f})"
        )


def adjusted(value: Float[Tensor, "*any"], null: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """(value - null) / (1 - null): 0 at chance, 1 at full agreement, nan where chance is agreement (a flat kernel).

    >>> import torch
    >>> adjusted(torch.tensor(0.9), torch.tensor(0.8)).item()
    0.5
    """
    room = 1 - null
    return torch.where(room.abs() > 1e-9, (value - null) / room, torch.nan)


def ansatz(
    weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
    *,
    centering: Centering = "none",
    agop_power: float = 1.0,
    draws: int = 50,
    seed: int = 0,
) -> Correlation:
    """`ansatz_correlation` beside its chance level. The analytic value is for p = 1; other powers need draws."""
    value = ansatz_correlation(weight, ptk_covariance, centering=centering, agop_power=agop_power)
    missing = torch.full_like(value, torch.nan)
    analytic = random_basis_null(weight, ptk_covariance, centering=centering) if agop_power == 1 else missing
    if not draws or not torch.isfinite(value):
        return Correlation(value, analytic, missing, missing, analytic)
    sampled = sampled_null(weight, ptk_covariance, centering=centering, agop_power=agop_power, draws=draws, seed=seed)
    return Correlation(value, sampled.mean(), sampled.quantile(0.05), sampled.quantile(0.95), analytic)


def random_basis_null(
    weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
    *,
    centering: Centering = "none",
) -> Float[Tensor, ""]:
    """The analytic chance level: K keeps its eigenvalues and its eigenvectors are uniformly random.

    E<F, G> / sqrt(E<F, F> E<G, G>) with the exact second moments of a uniformly turned K: E[K S K] = (A + B) S + B
    tr(S) I. For many units it becomes sqrt(s / (s + q - 1)), s = k tr(S^2)/tr(S)^2, q = k tr(K^2)/tr(K)^2, S = W W^T.
    A mean over turns: single draws scatter around it. One unit has nothing to turn, and the null is 1.
    """
    weight, kernel = weight.double(), ptk_covariance.to(weight.device).double()
    units, width = weight.shape
    if units == 1:
        return torch.ones((), dtype=torch.float64, device=weight.device)
    trace, square = kernel.trace(), (kernel * kernel).sum()
    # E[K_ab K_cd] = A d_ab d_cd + B (d_ac d_bd + d_ad d_bc), fixed by the two traces of K
    scale = units * (units - 1) * (units + 2)
    a = ((units + 1) * trace**2 - 2 * square) / scale
    b = (units * square - trace**2) / scale
    gram = weight @ weight.T if units <= width else weight.T @ weight
    gram_trace, gram_square = gram.trace(), (gram * gram).sum()
    ones = weight.sum(dim=1) @ weight.sum(dim=1)
    inner, agop_square = trace / units * gram_square, (a + b) * gram_square + b * gram_trace**2
    if centering == "entries":
        # the sum of G's entries is w^T K w with w = W 1; the mean of its square is (A + 2 B) |w|^4
        inner = inner - trace / units * ones**2 / width**2
        agop_square = agop_square - (a + 2 * b) * ones**2 / width**2
        gram_square = gram_square - ones**2 / width**2
    elif centering != "none":
        raise ValueError(f"centering is 'none' (cosine) or 'entries' (Pearson over the entries), got {centering!r}")
    return inner / (gram_square * agop_square).sqrt()


def sampled_null(
    weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
    *,
    centering: Centering = "none",
    agop_power: float = 1.0,
    draws: int = 50,
    seed: int = 0,
) -> Float[Tensor, "draw"]:
    """Correlations with K in uniformly random bases, its eigenvalues kept; quantiles of them are the null band.

    Only the image of W's left singular vectors under the turn matters, so a draw costs a QR of (unit, min(unit,
    input)).
    """
    weight, kernel = weight.double(), ptk_covariance.to(weight.device).double()
    squares, ones = singular_basis(weight)
    singular = squares.sqrt()
    values = torch.linalg.eigvalsh((kernel + kernel.T) / 2)
    generator = torch.Generator().manual_seed(seed)
    correlations = []
    for _ in range(draws):
        turned = random_frame(len(values), len(singular), generator).to(weight.device)
        agop = singular[:, None] * (turned.T @ (values[:, None] * turned)) * singular
        agop = agop if agop_power == 1 else positive_power(agop, agop_power)
        moments = moments_in_singular_basis(squares, ones, agop)
        correlations.append(correlation_of(moments, entries=weight.shape[1] ** 2, centering=centering))
    return torch.stack(correlations)


def in_random_basis(ptk_covariance: Float[Tensor, "unit unit"], *, seed: int = 0) -> Float[Tensor, "unit unit"]:
    """A kernel with the same eigenvalues and uniformly random eigenvectors, to stand in for K."""
    values = torch.linalg.eigvalsh(ptk_covariance.double())
    basis = random_frame(len(values), len(values), torch.Generator().manual_seed(seed)).to(values.device)
    return ((basis * values) @ basis.T).to(ptk_covariance.dtype)


def random_frame(units: int, vectors: int, generator: torch.Generator) -> Float[Tensor, "unit vector"]:
    """Orthonormal columns, uniform over all such frames."""
    basis, triangle = torch.linalg.qr(torch.randn(units, vectors, generator=generator, dtype=torch.float64))
    return basis * triangle.diagonal().sign()  # QR fixes signs by convention, and only random signs are uniform
