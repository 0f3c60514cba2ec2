"""Feature dictionaries: named column spaces that a block of modes can be compared with.

A dictionary is a plain mapping from a name to a matrix (row feature), so any matrix of the user's own is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.measures.overlaps import Overlap, orthonormal_span, subspace_overlap


def fourier_features(
    values: Int[Tensor, "row"], period: int, frequencies: list[int] | None = None
) -> Float[Tensor, "row feature"]:
    """cos and sin of 2 pi k v / period, side by side for each frequency k (by default all of 1 .. period // 2)."""
    chosen = torch.tensor(all_frequencies(period) if frequencies is None else frequencies, dtype=torch.float64)
    phase = 2 * torch.pi * values.to(torch.float64)[:, None] * chosen.to(values.device) / period
    waves = torch.stack([phase.cos(), phase.sin()], dim=-1)
    if period % 2 == 0:  # at half the period the sine is rounding, not a feature
        waves[:, chosen == period // 2, 1] = 0.0
    return waves.flatten(1)


def all_frequencies(period: int) -> list[int]:
    """The distinct real frequencies on Z_p, constant left out."""
    return list(range(1, period // 2 + 1))


def modular_families(
    first: Int[Tensor, "row"], second: Int[Tensor, "row"], period: int, frequencies: list[int] | None = None
) -> dict[str, Float[Tensor, "row feature"]]:
    """The Fourier families of two numbers modulo p: each alone, sum, difference, doubled, and sums over both axes.

    For odd p the families a and 2a span the same space over all frequencies; at chosen ones they do not.
    """
    of = {"a": first, "b": second, "a+b": first + second, "a-b": first - second, "2a": 2 * first, "2b": 2 * second}
    families = {name: fourier_features(values, period, frequencies) for name, values in of.items()}
    families["axis sum"] = families["a"] + families["b"]
    families["axis difference"] = families["a"] - families["b"]
    families["doubled axis sum"] = families["2a"] + families["2b"]
    return families


def indicators(labels: Int[Tensor, "row"]) -> Float[Tensor, "row feature"]:
    """One column per distinct label, one where the row has it: class labels, tokens, positions."""
    distinct = torch.unique(labels)
    return (labels[:, None] == distinct).to(torch.float64)


def superposition_features(data: Float[Tensor, "example feature"]) -> Float[Tensor, "example_output feature"]:
    """Feature j on the rows n*C + c of a flattened kernel: the data column j in output j, zero elsewhere.

    For networks that reproduce their inputs, one output per input feature (lin2025 v1, toy models of superposition).
    """
    return torch.diag_embed(data.to(torch.float64)).flatten(0, 1)


def on_every_output(features: Float[Tensor, "example feature"], outputs: int) -> Float[Tensor, "example_output column"]:
    """Features of examples lifted to the rows n*C + c of a flattened kernel: each feature in each output alone."""
    return torch.kron(features.to(torch.float64), torch.eye(outputs, dtype=torch.float64, device=features.device))


@dataclass(frozen=True)
class Carried:
    """One family's place in a scan: how much of it the block holds, of how much it could hold, and under the null."""

    family: str
    overlap: Overlap
    explained_percent: float
    significant: bool


def carried_families(
    modes: Float[Tensor, "row mode"],
    families: Mapping[str, Float[Tensor, "row feature"]],
    *,
    permutations: int = 99,
    seed: int = 0,
) -> list[Carried]:
    """Which families a block of modes carries, strongest first, without being told which to expect.

    `percent` of the overlap is the share of the family found in the block; `explained_percent` the share of the block
    found in the family: a block wider than a family can hold all of it and much else. Significant: above every
    permutation, and by at least the null's own spread above the highest.
    """
    _refuse_no_permutations(permutations)
    found = []
    for name, features in families.items():
        overlap = subspace_overlap(modes, features, permutations=permutations, seed=seed)
        explained = overlap.percent * overlap.feature_dimension / overlap.block_dimension
        margin = overlap.null_highest_percent - overlap.null_percent
        # permuting a nearly constant block leaves it nearly as it was: below chance nothing is carried, however rare
        significant = overlap.percent > max(overlap.null_highest_percent + margin, overlap.chance_percent)
        found.append(Carried(name, overlap, explained, significant))
    return sorted(found, key=lambda each: each.overlap.percent, reverse=True)


def frequency_shares(
    modes: Float[Tensor, "row mode"], values: Int[Tensor, "row"], period: int
) -> Float[Tensor, "frequency"]:
    """Share of each frequency's (cos, sin) plane of one family, centred, that a block holds: 1 when both lie in it."""
    block = orthonormal_span(modes)
    waves = [fourier_features(values, period, [k]).to(block) for k in all_frequencies(period)]
    planes = [orthonormal_span(wave - wave.mean(0)) for wave in waves]
    return torch.stack([(plane.T @ block).square().sum() / plane.shape[1] for plane in planes])


def key_frequencies(table: Float[Tensor, "token unit"], *, permutations: int = 199, seed: int = 0) -> list[int]:
    """Frequencies along the tokens of Z_p that a table (an embedding) uses more than any would be by chance, strongest
    first.

    Power of each frequency, summed over units, as a share of all; the null is the largest share after shuffling the
    tokens.
    """
    _refuse_no_permutations(permutations)
    values = table.detach().to(torch.float64).cpu()
    generator = torch.Generator().manual_seed(seed)
    orders = (torch.randperm(len(values), generator=generator) for _ in range(permutations))
    highest = max(float(_frequency_power(values[order]).max()) for order in orders)
    power = _frequency_power(values)
    ranked = torch.argsort(power, descending=True)
    return [int(index) + 1 for index in ranked if float(power[index]) > highest]


def _frequency_power(values: Float[Tensor, "token unit"]) -> Float[Tensor, "frequency"]:
    power = torch.fft.rfft(values, dim=0).abs().square().sum(1)[1:]
    return power / power.sum()


def _refuse_no_permutations(permutations: int) -> None:
    if permutations < 1:
        raise ValueError(f"significance is judged by shuffles, got permutations={permutations}; ask for 19 or more")
