"""The neural feature ansatz of one layer: does W^T W agree with the gradients the layer's input receives?

Everything here takes a layer's weight `W` (output unit x input unit) and its pre-activation tangent kernel covariance
`K` = sum over examples, outputs and positions of b b^T, b the gradient at the layer's result. Then (arXiv 2402.05271
v4)

    NFM  F = W^T W          AGOP  G = W^T K W  (exact, by the chain rule)

A scalar read-out has one unit, so its F and G are proportional whatever was learned: its correlation is 1 and says
nothing.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Centering = Literal["none", "entries"]


def ansatz_correlation(
    weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
    *,
    centering: Centering = "none",
    agop_power: float = 1.0,
) -> Float[Tensor, ""]:
    """How well the layer's NFM agrees with a power of its AGOP: rho(W^T W, (W^T K W)^p).

    rho is the cosine of the two matrices (`centering="none"`, the theory of arXiv 2402.05271) or Pearson's
    correlation over their entries (`"entries"`, the code released with it). With W it is the uncentred value, with W
    - W_0 the centred one; a weight that has not moved gives nan, for 0/0 has no value. The scale of K plays no part.
    Negative eigenvalues of an indefinite K (a change of K) count as zero when p is not 1.

    Cost: matrices of the smaller side of W, no larger; p = 1 needs products only, any other p one SVD.

    >>> import torch
    >>> weight = torch.diag(torch.tensor([2.0, 1.0]))
    >>> ansatz_correlation(weight, torch.eye(2)).item()
    1.0
    """
    weight, kernel = in_float64(weight, ptk_covariance)
    moments = _product_moments(weight, kernel) if agop_power == 1 else _spectral_moments(weight, kernel, agop_power)
    return correlation_of(moments, entries=weight.shape[1] ** 2, centering=centering)


def hybrid_correlation(
    weight: Float[Tensor, "unit input"],
    initial_weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
) -> Float[Tensor, ""]:
    """Cosine of the *change's* NFM with the *whole* network's AGOP: neither the uncentred nor the centred value.

    The check of Radhakrishnan et al. (Science 2024) with `remove_init`; kept apart because it is often mistaken for
    C-NFA.
    """
    weight, kernel = in_float64(weight, ptk_covariance)
    change = weight_change(weight, initial_weight)
    cross = weight @ change.T
    inner = (kernel * (cross @ cross.T)).sum()
    agop_norm = _product_moments(weight, kernel)[2].sqrt()
    return inner / (_smaller_gram(change).norm() * agop_norm)


def centred_share(
    weight: Float[Tensor, "unit input"],
    initial_weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
) -> Float[Tensor, ""]:
    """How much of the uncentred alignment the change of the weights carries: tr(F_c G_c) / tr(F G), c for W - W_0.

    Near 1 the initial weights no longer matter and the centred and uncentred correlations are one number; above 1 the
    change cancels part of the initial weights. tr(F G) = tr(K (W W^T)^2).
    """
    weight, kernel = in_float64(weight, ptk_covariance)
    change = weight_change(weight, initial_weight)
    return _product_moments(change, kernel)[0] / _product_moments(weight, kernel)[0]


def relative_change(
    weight: Float[Tensor, "unit input"], initial_weight: Float[Tensor, "unit input"]
) -> Float[Tensor, ""]:
    """How far the layer has moved: |W - W_0| / |W| in Frobenius norms."""
    return weight_change(weight.double(), initial_weight).norm() / weight.double().norm()


def weight_change(
    weight: Float[Tensor, "unit input"], initial_weight: Float[Tensor, "_unit _input"]
) -> Float[Tensor, "unit input"]:
    """W - W_0 in the precision of W; shapes that would only broadcast are refused."""
    if initial_weight.shape != weight.shape:
        raise ValueError(
            f"the initial weight has the weight's shape {tuple(weight.shape)}, got {tuple(initial_weight.shape)}; give "
            "the same layer's weight before training"
        )
    return weight - initial_weight.to(weight)


def in_float64(
    weight: Float[Tensor, "*axes"], ptk_covariance: Float[Tensor, "rows columns"]
) -> tuple[Float[Tensor, "unit input"], Float[Tensor, "unit unit"]]:
    """Both in float64: traces of fourth powers lose half of float32's digits."""
    if weight.ndim != 2 or ptk_covariance.shape != (weight.shape[0], weight.shape[0]):
        raise ValueError(
            f"the ansatz needs a weight (unit, input) and a PTK covariance (unit, unit), got {tuple(weight.shape)} and "
            f"{tuple(ptk_covariance.shape)}; flatten a convolution's weight to (out, in*kh*kw), take the same rows"
        )
    return weight.double(), ptk_covariance.to(device=weight.device, dtype=torch.float64)


def _smaller_gram(weight: Float[Tensor, "unit input"]) -> Float[Tensor, "side side"]:
    return weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight


def _product_moments(weight: Float[Tensor, "unit input"], kernel: Float[Tensor, "unit unit"]) -> tuple[Tensor, ...]:
    """<F, G>, <F, F>, <G, G> and the sums of the entries of F and G, by products on the smaller side of W."""
    ones = weight.sum(dim=1)
    nfm_sum, agop_sum = ones @ ones, ones @ kernel @ ones
    gram = _smaller_gram(weight)
    if weight.shape[0] <= weight.shape[1]:
        # tr(F G) = tr(K S^2) and |G|^2 = tr(K S K S) with S = W W^T: no matrix of input size is formed
        product = kernel @ gram
        return (product * gram).sum(), (gram * gram).sum(), (product * product.T).sum(), nfm_sum, agop_sum
    agop = weight.T @ kernel @ weight
    return (gram * agop).sum(), (gram * gram).sum(), (agop * agop).sum(), nfm_sum, agop_sum


def _spectral_moments(
    weight: Float[Tensor, "unit input"], kernel: Float[Tensor, "unit unit"], power: float
) -> tuple[Tensor, ...]:
    """The same five numbers for G^p, in the basis of W's right singular vectors."""
    left, singular, right = torch.linalg.svd(weight, full_matrices=False)
    agop = singular[:, None] * (left.T @ kernel @ left) * singular
    return moments_in_singular_basis(singular**2, right.sum(dim=1), positive_power(agop, power))


def moments_in_singular_basis(
    squares: Float[Tensor, "mode"], ones: Float[Tensor, "mode"], agop: Float[Tensor, "mode mode"]
) -> tuple[Tensor, ...]:
    """The five numbers in W's right singular basis: F = diag(squares), G is `agop`, the all-ones vector `ones`."""
    return squares @ agop.diagonal(), squares @ squares, (agop * agop).sum(), ones**2 @ squares, ones @ agop @ ones


def singular_basis(weight: Float[Tensor, "unit input"]) -> tuple[Float[Tensor, "mode"], Float[Tensor, "mode"]]:
    """Squared singular values and the all-ones vector in the right singular basis, by one eigh of the smaller side."""
    units, width = weight.shape
    squares, vectors = torch.linalg.eigh(weight @ weight.T if units <= width else weight.T @ weight)
    squares = squares.clamp(min=0)
    if units > width:
        return squares, vectors.sum(dim=0)
    images = vectors.T @ weight.sum(dim=1)
    # a direction W maps to rounding has no right singular vector; both sides of it are zero
    present = squares > squares.max() * units * torch.finfo(squares.dtype).eps
    return squares, torch.where(present, images / squares.sqrt().where(present, torch.ones_like(squares)), 0)


def positive_power(matrix: Float[Tensor, "unit unit"], power: float) -> Float[Tensor, "unit unit"]:
    """The power of a symmetric matrix, its negative eigenvalues and those at rounding level set to zero."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    # a zero eigenvalue comes out as 1e-16 of the largest, and its cube root would be 1e-5
    noise = values.abs().max() * len(values) * torch.finfo(values.dtype).eps
    return (vectors * torch.where(values > noise, values, 0) ** power) @ vectors.T


def correlation_of(moments: tuple[Tensor, ...], *, entries: int, centering: Centering) -> Float[Tensor, "*draw"]:
    """rho from the five numbers, also by draw: cosine, or Pearson over the entries once squared means are taken off."""
    inner, nfm_square, agop_square, nfm_sum, agop_sum = moments
    if centering == "entries":
        inner = inner - nfm_sum * agop_sum / entries
        nfm_square = nfm_square - nfm_sum**2 / entries
        agop_square = agop_square - agop_sum**2 / entries
    elif centering != "none":
        raise ValueError(f"centering is 'none' (cosine) or 'entries' (Pearson over the entries), got {centering!r}")
    return inner / (nfm_square * agop_square).sqrt()
