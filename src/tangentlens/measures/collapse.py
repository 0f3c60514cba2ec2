"""NC1: how small the spread of features within classes is beside the spread between them."""

from __future__ import annotations

import math

import torch

from tangentlens.errors import BadInput
from tangentlens.measures.eigenfunctions import symmetric_modes
from tangentlens.measures.forward_moments import ForwardMoments, constant
from tangentlens.measures.richness import one_hot_targets


def collapse(moments: ForwardMoments) -> float:
    """NC1 = Tr(Sigma_W Sigma_B^+) / C (Papyan, Han, Donoho 2020): 0 is full collapse.

    A baseline in arXiv 2410.04264 v3. It needs class labels and has no upper end. Sigma_B^+ inverts the at most C - 1
    directions between class means. Features that are constant, and a single class, have nan: nothing lies between.
    """
    if not one_hot_targets(moments):
        raise BadInput("NC1 is about classes: it needs one-hot targets; pass targets=one_hot(labels, C)")
    if constant(moments, "features"):  # the directions between class means would be those of rounding
        return math.nan
    counts = moments.total("one", "targets")[0]
    scale = counts.sum() / moments.weight
    shares, sums = counts / scale / moments.weight, moments.second_moment("targets", "features") / scale
    present = shares > 0
    shares, class_means = shares[present], sums[present] / shares[present, None]
    from_centre = (class_means - moments.mean("features")) * shares.sqrt()[:, None]
    within = moments.covariance("features", "features") - from_centre.T @ from_centre
    # Sigma_B = A^T A has the eigenvalues of the small A A^T, and rank at most C - 1
    squares, vectors = symmetric_modes(from_centre @ from_centre.T)
    kept = squares > 1e-10 * squares[0].clamp_min(torch.finfo(squares.dtype).tiny)
    if not bool(kept.any()):
        return math.nan
    directions = from_centre.T @ (vectors[:, kept] / squares[kept])
    return float((directions * (within @ directions)).sum()) / len(shares)
