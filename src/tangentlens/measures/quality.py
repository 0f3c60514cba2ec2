"""Quality and utilisation: how much of the target, and of the learned function, lies along each mode.

Two normalisations, since the equation of arXiv 2410.04264 (v3, Eq. 5) was not available to us. They agree whenever
the components of the function are orthogonal with equal norms, as balanced one-hot targets are.

- `"subspace"`: ||P_H e_k||^2 / dim H with H the span of the components: every independent direction counts alike.
- `"variance"`: sum_c <e_k|f_c>^2 / sum_c <f_c|f_c>: directions count by their size, so rare classes count little.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from tangentlens.measures.eigenfunctions import Eigenfunctions, eigenfunctions, symmetric_modes
from tangentlens.measures.forward_moments import ForwardMoments
from tangentlens.measures.richness import Convention, learned_directions

Normalisation = Literal["subspace", "variance"]
NORMALISATIONS: tuple[Normalisation, ...] = ("subspace", "variance")


def quality(
    moments: ForwardMoments, modes: Eigenfunctions | None = None, *, normalisation: Normalisation = "subspace"
) -> Float64[Tensor, "mode"]:
    """Q*_k: how much of the target f* lies along mode k (arXiv 2410.04264 v1 and v3), over the same examples.

    In sample, features that know nothing of the target reach a summed quality of units/examples: see `held_out_quality`
    and `adjusted_quality` for what generalises.
    """
    return _share_along(moments, "targets", modes, normalisation)


def utilisation(
    moments: ForwardMoments, modes: Eigenfunctions | None = None, *, normalisation: Normalisation = "subspace",
    convention: Convention = "paper", tolerance: float | None = None,
) -> Float64[Tensor, "mode"]:  # fmt: skip
    """Q-hat_k: how much of the learned function f-hat lies along mode k ("utility" in v1, "utilization" in v3).

    The sum over modes is 1 for a head without bias; a bias reaches outside the span of the features. Literally, in the
    subspace normalisation, every direction of the outputs counts alike, so also the sum of the logits, which no
    classifier uses. `convention="robust"` is that of `richness`: the span of the constant and the outputs, without
    their mean over classes where targets are one-hot and without directions below `tolerance` of the largest. There
    the constant counts as far as features can express it, since a bias gives it for nothing.
    """
    if convention == "paper":
        return _share_along(moments, "outputs", modes, normalisation)
    if normalisation not in NORMALISATIONS:
        raise _unknown(normalisation)
    modes = eigenfunctions(moments) if modes is None else modes
    basis, singular_values = learned_directions(moments, convention, tolerance=tolerance)
    constant = (modes.directions.T @ moments.mean("features")).square()
    along = modes.directions.T @ moments.covariance("features", "outputs") @ basis
    if normalisation == "subspace":
        return (constant + along.square().sum(1)) / (constant.sum() + basis.shape[1])
    sizes = singular_values[: basis.shape[1]]
    return (along * sizes).square().sum(1) / sizes.square().sum()


def cumulative(shares: Float64[Tensor, "mode"]) -> Float64[Tensor, "mode"]:
    """Pi(k): the share along the k strongest modes together. Read it at gaps of the spectrum only.

    >>> cumulative(torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)).tolist()
    [0.5, 0.75, 1.0]
    """
    return shares.cumsum(0)


def held_out_quality(
    fitted: ForwardMoments, held_out: ForwardMoments, *, normalisation: Normalisation = "subspace",
    modes: Eigenfunctions | None = None,
) -> Float64[Tensor, "mode"]:  # fmt: skip
    """Pi*(k) on other examples: modes and coefficients from `fitted`, the share they explain from `held_out`.

    Pi(k) = 1 - residual(k) / total over the held-out examples, with the residual of sum_{j<=k} <e_j|f*>_fitted e_j.
    Features that know nothing of the target land at or below 0 instead of units/examples; it can fall with k.
    """
    modes = eigenfunctions(fitted) if modes is None else modes
    directions = modes.directions
    coefficients = directions.T @ fitted.second_moment("features", "targets")
    cross = directions.T @ held_out.second_moment("features", "targets")
    gram = directions.T @ held_out.second_moment("features", "features") @ directions
    metric = _metric(held_out.second_moment("targets", "targets"), normalisation)
    # tr(metric * residual): the prediction of the first k modes gains 2 <c_j, x_j> and pays sum_{i,j} c_i G_ij c_j
    gain = 2 * torch.einsum("kc,cd,kd->k", coefficients, metric, cross)
    pay = gram * (coefficients @ metric @ coefficients.T)
    return gain.cumsum(0) - pay.cumsum(0).cumsum(1).diagonal()


def adjusted_quality(
    cumulated: Float64[Tensor, "mode"], rows: int, *, modes: int | None = None
) -> Float64[Tensor, "mode"]:
    """In-sample Pi(k) with its chance level removed: 1 - (1 - Pi(k)) (n - 1) / (n - k - 1), as an adjusted R^2.

    From k = n - 1 on every target is met in sample and nothing is left to judge by: nan.

    >>> adjusted_quality(torch.tensor([0.5, 0.9, 1.0], dtype=torch.float64), 3).tolist()
    [0.0, nan, nan]
    """
    count = torch.arange(1, len(cumulated) + 1, dtype=cumulated.dtype, device=cumulated.device)
    if modes is not None:
        count = torch.full_like(cumulated, float(modes))
    left = rows - count - 1
    return torch.where(left > 0, 1 - (1 - cumulated) * (rows - 1) / left, torch.nan)


def chance_quality(rows: int, modes: int) -> float:
    """The in-sample quality, summed over modes, of features that know nothing of the target: modes/rows."""
    return min(1.0, modes / rows)


def _share_along(
    moments: ForwardMoments, part: Literal["targets", "outputs"], modes: Eigenfunctions | None, rule: Normalisation
) -> Tensor:
    modes = eigenfunctions(moments) if modes is None else modes
    coefficients = modes.directions.T @ moments.second_moment("features", part)
    metric = _metric(moments.second_moment(part, part), rule)
    return torch.einsum("kc,cd,kd->k", coefficients, metric, coefficients)


def _metric(gram: Tensor, rule: Normalisation) -> Tensor:
    """The quadratic form of a normalisation: it takes the coefficients of a function to its share, and adds up to 1."""
    if rule == "variance":
        return torch.eye(len(gram), dtype=gram.dtype, device=gram.device) / gram.trace()
    if rule != "subspace":
        raise _unknown(rule)
    eigenvalues, vectors = symmetric_modes(gram)
    # squaring halves the digits: what is below 1e-6 of the largest component in norm is rounding
    kept = eigenvalues > 1e-12 * eigenvalues[0]
    inverse = vectors[:, kept] / eigenvalues[kept] @ vectors[:, kept].T
    return inverse / kept.sum()


def _unknown(rule: str) -> ValueError:
    return ValueError(f"normalisation is one of {', '.join(NORMALISATIONS)}, got {rule!r}")
