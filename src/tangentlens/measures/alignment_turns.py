"""A tangent kernel in random bases: how a layer would correlate if its weights and its kernel knew nothing of each
other.

Both spectra are kept, the kernel's eigenvectors are uniformly random. With A = W W^T = sum a_i x_i x_i^T and
K = sum b_j y_j y_j^T the correlation depends on the overlaps <x_i, y_j> alone. Only a corner of them is drawn: the
leading directions of A by those of K, exactly distributed at a cost that does not grow with the layer (Bartlett's
decomposition: Muirhead, Aspects of Multivariate Statistical Theory, theorem 3.2.14). The rest of either spectrum is
many small parts: it enters by its mean over turns given the corner, and by Gaussian scatter of the right size. Layers
of at most 64 units are drawn whole, and nothing is left to means.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.alignment import (
    Centering,
    correlation_of,
    moments_in_singular_basis,
    positive_power,
    singular_basis,
)

MODES = 32
"""Leading directions of either spectrum whose overlaps are drawn; layers of twice as many units are drawn whole."""


@dataclass(frozen=True)
class Spectrum:
    """The leading eigenvalues of a (unit, unit) matrix; of the others their number and the means of their powers."""

    leading: Float[Tensor, "mode"]
    rest: int
    mean: Float[Tensor, ""]
    mean_square: Float[Tensor, ""]
    mean_fourth: Float[Tensor, ""]

    @property
    def spread(self) -> Float[Tensor, ""]:
        """Sum over the rest of the squared distance from its mean."""
        return self.rest * (self.mean_square - self.mean**2).clamp(min=0)

    @property
    def spread_of_squares(self) -> Float[Tensor, ""]:
        """The same of the squared eigenvalues."""
        return self.rest * (self.mean_fourth - self.mean_square**2).clamp(min=0)

    @property
    def trace(self) -> Float[Tensor, ""]:
        return self.leading.sum() + self.rest * self.mean

    @property
    def square(self) -> Float[Tensor, ""]:
        """Trace of the matrix's square."""
        return self.leading.square().sum() + self.rest * self.mean_square

    @property
    def variance(self) -> Float[Tensor, ""]:
        """Sum over all eigenvalues of the squared distance from their mean."""
        return self.square - self.trace**2 / (len(self.leading) + self.rest)


class Turns:
    """A kernel in uniformly random bases, its eigenvalues kept: made once for all weights it is compared with."""

    def __init__(self, ptk_covariance: Float[Tensor, "unit unit"], *, draws: int, seed: int = 0) -> None:
        if draws < 0:
            raise ValueError(f"draws is a number of random bases, at least 0, got {draws}; 0 draws none")
        self.draws, self.units, self._seed = draws, len(ptk_covariance), seed
        self.kernel = ((ptk_covariance + ptk_covariance.mT) / 2).double()
        self._in_basis: dict[int, tuple[Tensor, Tensor]] = {}

    @cached_property
    def spectrum(self) -> Spectrum:
        return spectrum_of(self.kernel, self.units)[0]

    def in_basis(self, modes: int) -> tuple[Float[Tensor, "draw mode mode"], Float[Tensor, "draw mode"]]:
        """Between so many orthonormal directions: K by draw, and the diagonal of K^2."""
        if modes not in self._in_basis:
            found = self.spectrum
            overlaps = random_overlaps(self.units, modes, len(found.leading), self.draws, self.generator(0))
            turned = (overlaps * (found.leading - found.mean)) @ overlaps.mT + self._scatter(modes)
            turned.diagonal(dim1=1, dim2=2).add_(found.mean)
            squared = found.mean_square + overlaps**2 @ (found.leading**2 - found.mean_square)
            self._in_basis[modes] = turned, squared
        return self._in_basis[modes]

    def _scatter(self, modes: int) -> Float[Tensor, "draw mode mode"] | float:
        """What K's rest does between those directions beside its mean: a sum of many small parts, so Gaussian."""
        rest = self.spectrum.rest
        if rest < 2:
            return 0.0
        size = (self.spectrum.spread / ((rest + 2) * (rest - 1))).sqrt() * rest / self.units
        noise = torch.randn(self.draws, modes, modes, generator=self.generator(1), dtype=torch.float64)
        return size * (noise + noise.mT) / 2**0.5

    def generator(self, stream: int) -> torch.Generator:
        return torch.Generator().manual_seed(3 * self._seed + stream)


def sampled_null(
    weight: Float[Tensor, "unit input"], turns: Turns, *, centering: Centering = "none", agop_power: float = 1.0
) -> Float[Tensor, "draw"]:
    """Correlations with K in uniformly random bases, its eigenvalues kept; quantiles of them are the null band.

    Cost of a draw: 64^3 operations at most, however wide the layer; once, the leading eigenvectors of either side.
    Powers other than 1 have no such shortcut: whole frames are turned, a QR and an eigendecomposition of the smaller
    side a draw.
    """
    weight = weight.double()
    if agop_power != 1:
        return _by_whole_frames(weight, turns, centering, agop_power)
    units, width = weight.shape
    gram, ones = (weight @ weight.T if units <= width else weight.T @ weight), weight.sum(dim=1)
    spectrum, vectors = spectrum_of(gram, units)
    # W 1 along A's leading directions; from the input side those are W r_i / s_i, r_i the vectors found
    along = vectors.T @ ones if units <= width else vectors.sum(dim=0) * spectrum.leading.clamp(min=0).sqrt().to(ones)
    moments = _turned_moments(spectrum, turns, along.cpu(), (ones @ ones).cpu())
    return correlation_of(moments, entries=width**2, centering=centering).to(weight.device)


def spectrum_of(matrix: Float[Tensor, "side side"], units: int) -> tuple[Spectrum, Float[Tensor, "side mode"]]:
    """The spectrum of a symmetric matrix, zeros added up to `units`, and its leading eigenvectors."""
    values, vectors = _leading(matrix, units if units <= 2 * MODES else MODES)
    if len(values) == len(matrix):  # nothing was left out, and what is added is exactly zero
        return Spectrum(values.cpu(), units - len(values), *torch.zeros(3, dtype=torch.float64)), vectors
    square = (matrix @ matrix).square().sum()
    sums = torch.stack([matrix.trace(), matrix.square().sum(), square])
    known = torch.stack([values.sum(), values.square().sum(), values.pow(4).sum()])
    rest = units - len(values)
    return Spectrum(values.cpu(), rest, *((sums - known) / rest).cpu()), vectors


def _leading(
    matrix: Float[Tensor, "side side"], modes: int
) -> tuple[Float[Tensor, "mode"], Float[Tensor, "side mode"]]:
    """Eigenpairs of largest size. By iteration they are approximate, and the rest takes up the difference."""
    side = len(matrix)
    if side <= 2 * MODES:
        values, vectors = torch.linalg.eigh(matrix)
    else:
        start = torch.randn(side, modes + 8, generator=torch.Generator().manual_seed(0), dtype=matrix.dtype)
        basis = torch.linalg.qr(matrix @ start.to(matrix.device)).Q
        for _ in range(3):
            basis = torch.linalg.qr(matrix @ basis).Q
        values, within = torch.linalg.eigh(basis.T @ matrix @ basis)
        vectors = basis @ within
    order = values.abs().argsort(descending=True)[:modes]
    return values[order], vectors[:, order]


def random_overlaps(
    units: int, rows: int, columns: int, draws: int, generator: torch.Generator
) -> Float[Tensor, "draw row column"]:
    """The (row, column) corner of uniformly random orthogonal matrices of `units`, without the matrices.

    The first `columns` coordinates of a uniform frame of `rows` vectors: Gaussians, made orthonormal by the Cholesky
    factor of their Gram matrix, to which the other coordinates add a Wishart matrix.
    """
    others = units - columns
    seen = torch.randn(draws, columns, rows, generator=generator, dtype=torch.float64)
    if others >= rows:
        degrees = (others - torch.arange(rows, dtype=torch.float64)).expand(draws, rows)
        # a chi-squared variable is twice a gamma variable of half its degrees of freedom
        diagonal = (2 * torch._standard_gamma(degrees / 2, generator=generator)).sqrt()
        below = torch.randn(draws, rows, rows, generator=generator, dtype=torch.float64).tril(-1)
        factor = below + torch.diag_embed(diagonal)
    else:
        factor = torch.randn(draws, rows, others, generator=generator, dtype=torch.float64)
    triangle = torch.linalg.cholesky(seen.mT @ seen + factor @ factor.mT)
    return torch.linalg.solve_triangular(triangle, seen.mT, upper=False)


def _turned_moments(
    weights: Spectrum, turns: Turns, along_ones: Float[Tensor, "mode"], ones_square: Float[Tensor, ""]
) -> tuple[Tensor, ...]:
    """<F, G> = tr(A^2 K), |F|^2 = tr(A^2), |G|^2 = tr(A K A K) and the sums of the entries of F and G, by draw.

    A's rest, p eigenvalues with distances D from their mean, has tr(D^2 K) scattering around zero and the mean

        E tr(D K D K) = |D|^2 / ((p + 2)(p - 1)) ((tr K_r)^2 + (1 - 2/p) |K_r|^2)

    over turns inside its own space, on which K is K_r.
    """
    kernel, units, rest = turns.spectrum, turns.units, weights.rest
    turned, squared = turns.in_basis(len(weights.leading))
    sensitivity, above = turned.diagonal(dim1=1, dim2=2), weights.leading - weights.mean
    of_rest = kernel.trace - sensitivity.sum(1)
    noise = torch.randn(turns.draws, generator=turns.generator(2), dtype=torch.float64)
    noise = noise * (2 * weights.spread_of_squares * kernel.variance).sqrt() / units
    inner = sensitivity @ weights.leading**2 + weights.mean_square * of_rest + noise
    agop_square = weights.mean**2 * kernel.square + 2 * weights.mean * (squared @ above)
    agop_square = agop_square + (above[:, None] * above * turned**2).sum((1, 2)) + 2 * kernel.trace / units * noise
    if rest > 1:
        of_rest_squared = kernel.square - 2 * squared.sum(1) + turned.square().sum((1, 2))
        share = weights.spread / ((rest + 2) * (rest - 1))
        agop_square = agop_square + share * (of_rest**2 + (1 - 2 / rest) * of_rest_squared)
    ones_rest = (ones_square - along_ones.square().sum()).clamp(min=0) / max(1, rest)
    agop_sum = torch.einsum("m,dmn,n->d", along_ones, turned, along_ones) + ones_rest * of_rest
    return inner, weights.square, agop_square, ones_square, agop_sum


def _by_whole_frames(
    weight: Float[Tensor, "unit input"], turns: Turns, centering: Centering, agop_power: float
) -> Float[Tensor, "draw"]:
    squares, ones = singular_basis(weight)
    singular, generator = squares.sqrt(), turns.generator(0)
    values = torch.linalg.eigvalsh(turns.kernel).to(weight.device)
    correlations = []
    for _ in range(turns.draws):
        turned = random_frame(turns.units, len(singular), generator).to(weight.device)
        agop = singular[:, None] * (turned.T @ (values[:, None] * turned)) * singular
        moments = moments_in_singular_basis(squares, ones, positive_power(agop, agop_power))
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
