"""What the ansatz correlation would be by chance: the same two spectra, the kernel's eigenvectors turned at random.

Without it a correlation cannot be read: a concentrated weight spectrum alone puts the cosine near 0.8, training or not.
There are two ways to the chance level. The analytic one costs nothing and is the mean over turns where both spectra are
spread over many directions; where a few dominate, as after training, it lies below that mean (by 0.15 at worst), and
only turning the kernel and measuring again is right. So the null is the mean of the sampled turns, and the
analytic value stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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


class Turns:
    """A kernel in uniformly random bases, its eigenvalues kept: made once for all weights it is compared with."""

    def __init__(self, ptk_covariance: Float[Tensor, "unit unit"], *, draws: int = 50, seed: int = 0) -> None:
        self.draws, self._seed = draws, seed
        self._kernel = ptk_covariance.double()
        self._frames: dict[int, list[Tensor]] = {}

    @cached_property
    def eigenvalues(self) -> Float[Tensor, "mode"]:
        return torch.linalg.eigvalsh((self._kernel + self._kernel.T) / 2)

    def frames(self, vectors: int) -> list[Float[Tensor, "unit vector"]]:
        if vectors not in self._frames:
            generator = torch.Generator().manual_seed(self._seed)
            units = len(self._kernel)
            self._frames[vectors] = [random_frame(units, vectors, generator) for _ in range(self.draws)]
        return self._frames[vectors]


def ansatz(
    weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
    *,
    centering: Centering = "none",
    agop_power: float = 1.0,
    draws: int = 50,
    seed: int = 0,
    turns: Turns | None = None,
) -> Correlation:
    """`ansatz_correlation` beside its chance level. The analytic value is for p = 1; other powers need draws.

    `turns` of the same kernel, where several weights are compared with it, take the place of `draws` and `seed`.
    """
    turns = turns or Turns(ptk_covariance, draws=draws, seed=seed)
    value = ansatz_correlation(weight, ptk_covariance, centering=centering, agop_power=agop_power)
    missing = torch.full_like(value, torch.nan)
    analytic = random_basis_null(weight, ptk_covariance, centering=centering) if agop_power == 1 else missing
    if not turns.draws or not torch.isfinite(value):
        return Correlation(value, analytic, missing, missing, analytic)
    sampled = sampled_null(weight, turns, centering=centering, agop_power=agop_power)
    return Correlation(value, sampled.mean(), sampled.quantile(0.05), sampled.quantile(0.95), analytic)


def random_basis_null(
    weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
    *,
    centering: Centering = "none",
) -> Float[Tensor, ""]:
    """The analytic chance level: K keeps its eigenvalues and its eigenvectors are uniformly random.

    sqrt(s / (s + q - 1)) with s = k tr(S^2)/tr(S)^2, q = k tr(K^2)/tr(K)^2, S = W W^T and k units: the ratio
    E<F, G> / sqrt(E<F, F> E<G, G>) for many units, where E[K S K] = m^2 S + (v / k) tr(S) I with m the mean and v the
    variance of K's eigenvalues. Terms of order 1/k are left out: with them the ratio lies further below the mean over
    turns. Single turns scatter around it. One unit has nothing to turn, and the null is 1.
    """
    weight, kernel = weight.double(), ptk_covariance.to(weight.device).double()
    units, width = weight.shape
    if units == 1:
        return torch.ones((), dtype=torch.float64, device=weight.device)
    mean = kernel.trace() / units
    excess = ((kernel * kernel).sum() / units - mean**2) / units
    gram = weight @ weight.T if units <= width else weight.T @ weight
    trace_square, gram_square = gram.trace() ** 2, (gram * gram).sum()
    if centering == "entries":
        # one direction goes out of both: the sums of the entries of F and G are |w|^2 and w^T K w with w = W 1
        along_ones = (weight.sum(dim=1).square().sum() / width) ** 2
        trace_square, gram_square = trace_square - along_ones, gram_square - along_ones
    elif centering != "none":
        raise ValueError(f"centering is 'none' (cosine) or 'entries' (Pearson over the entries), got {centering!r}")
    return mean * (gram_square / (mean**2 * gram_square + excess * trace_square)).sqrt()


def sampled_null(
    weight: Float[Tensor, "unit input"], turns: Turns, *, centering: Centering = "none", agop_power: float = 1.0
) -> Float[Tensor, "draw"]:
    """Correlations with K in uniformly random bases, its eigenvalues kept; quantiles of them are the null band.

    Only the image of W's left singular vectors under the turn matters, so a draw costs a QR of (unit, min(unit,
    input)).
    """
    weight = weight.double()
    squares, ones = singular_basis(weight)
    singular, values = squares.sqrt(), turns.eigenvalues.to(weight.device)
    correlations = []
    for frame in turns.frames(len(singular)):
        turned = frame.to(weight.device)
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
