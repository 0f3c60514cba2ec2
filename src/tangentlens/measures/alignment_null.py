"""What the ansatz correlation would be by chance: the same two spectra, the kernel's eigenvectors turned at random.

Without it a correlation cannot be read: a concentrated weight spectrum alone puts the cosine near 0.8, training or not.
There are two ways to the chance level. The analytic one costs nothing and is the mean over turns where both spectra are
spread over many directions; where a few dominate, as after training, it lies below that mean (by 0.15 at worst), and
only turning the kernel and measuring again is right. So the null is the mean of the sampled turns, and the
analytic value stands beside it. Without a sampled band nothing can be said to lie above chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.alignment import Centering, ansatz_correlation, in_float64
from tangentlens.measures.alignment_turns import Turns, sampled_null

DRAWS = 99
"""Random bases by default: with 99, a value at chance lies above the band in exactly one case of twenty."""
TAIL = 0.05


@dataclass(frozen=True)
class Correlation:
    """A correlation beside its chance level: the mean over random turns, the middle 90 % of them, the analytic value.

    Where nothing was drawn, the null is the analytic value and the band is nan: such a value is compared with a level
    that may be too low, and is not above chance by it.
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

    @property
    def above_chance(self) -> bool:
        """Whether the value lies above the band: by chance in one case of twenty, and never where there is no band."""
        return bool(self.value > self.high)

    def __str__(self) -> str:
        if not torch.isfinite(self.high):
            return f"{self.value:.3f} (analytic chance level {self.null:.3f}, no random basis drawn)"
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
    draws: int = DRAWS,
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
    return Correlation(value, sampled.mean(), *band(sampled), analytic)


def band(sampled: Float[Tensor, "draw"]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Two of the draws, beyond each of which one more draw lies with probability 0.05 at most; nan with fewer than 19.

    The m-th largest of n draws is exceeded by another with probability m / (n + 1), whatever their law. An interpolated
    quantile is not: of 8 draws it is exceeded three times as often as it says.

    >>> import torch
    >>> [end.item() for end in band(torch.arange(1.0, 100.0))]
    [5.0, 95.0]
    """
    rank = int(TAIL * (len(sampled) + 1) + 1e-9)
    if rank == 0:
        return torch.full_like(sampled[0], torch.nan), torch.full_like(sampled[0], torch.nan)
    ordered = sampled.sort().values
    return ordered[rank - 1], ordered[-rank]


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
    weight, kernel = in_float64(weight, ptk_covariance)
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
