"""Which mode looks like which feature: the map of cosines, its normalised form, and the best pairing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


def mode_map(modes: Float[Tensor, "row mode"], features: Float[Tensor, "row feature"]) -> Float[Tensor, "feature mode"]:
    """|cosine| of every feature with every mode. A cosine of 1 is identity: a weak map looks weak."""
    unit_modes = _unit_columns(modes.to(torch.float64))
    return (_unit_columns(features.to(unit_modes)).T @ unit_modes).abs()


def column_normalised(cosines: Float[Tensor, "feature mode"]) -> Float[Tensor, "feature mode"]:
    """Each mode's column divided by its norm over the features: which feature a mode prefers *among those given*.

    As in the figures of lin2025 v1. A bright entry is a preference, not an agreement: read it beside `mode_map`.
    """
    return cosines / cosines.norm(dim=0, keepdim=True).clamp(min=1e-10)


def frequency_map(
    modes: Float[Tensor, "row mode"], waves: Float[Tensor, "row feature"]
) -> Float[Tensor, "frequency mode"]:
    """Per frequency, sqrt(cos^2 + sin^2) of a mode with its wave of any phase; `waves` as `fourier_features` gives
    them."""
    if waves.shape[1] % 2:
        raise ValueError(f"waves come in pairs of cosine and sine, got {waves.shape[1]} columns")
    return mode_map(modes, waves).unflatten(0, (-1, 2)).square().sum(1).sqrt()


@dataclass(frozen=True, eq=False)
class Assignment:
    """A one-to-one pairing of features with modes that makes the sum of their cosines largest."""

    features: Int[Tensor, "pair"]
    modes: Int[Tensor, "pair"]
    cosines: Float[Tensor, "pair"]


def best_assignment(cosines: Float[Tensor, "feature mode"]) -> Assignment:
    """The pairing with the largest total, in order of mode; within a near-degenerate block it is not unique."""
    from scipy.optimize import linear_sum_assignment

    features, modes = map(torch.as_tensor, linear_sum_assignment(cosines.cpu().numpy(), maximize=True))
    order = torch.argsort(modes)
    features, modes = features[order], modes[order]
    return Assignment(features, modes, cosines.cpu()[features, modes])


def distinct_favourites(cosines: Float[Tensor, "feature mode"]) -> int:
    """How many features are some mode's favourite: as many as the modes when each has its own."""
    return len(torch.unique(cosines.argmax(0)))


def _unit_columns(columns: Float[Tensor, "row column"]) -> Float[Tensor, "row column"]:
    return columns / columns.norm(dim=0, keepdim=True).clamp(min=1e-300)
