"""The modular-addition MLP: cliffs, Fourier families, layers and their course over training (lin2025, all versions).

Kernel: the mean over outputs, on all p^2 pairs. Two readings stand side by side: the paper's windows, 1 + 4 floor(p/2)
modes apart and told beforehand, so that runs without a second cliff have one to look at; and the block above the
largest cliff that the initial network lacks, found at the end and followed back by its content.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels import entk_by_layer, spectrum
from tangentlens.kernels.spectra import Spectrum
from tangentlens.measures.cliffs import Cliffs, blocks, cliffs
from tangentlens.measures.families import carried_families, modular_families
from tangentlens.measures.overlaps import subspace_overlap
from tangentlens.measures.tracking import followed_blocks
from tangentlens.studies.modular_addition import Epoch, ModularAddition, all_pairs, training

MODES = 200
FAMILIES = ("a", "b", "a+b", "a-b")
ONSET = 0.5  # the declared rule: the first recorded epoch at which half of the test pairs are right


@dataclass(eq=False)
class MLPRun:
    """What one run showed at every recorded epoch, and in more detail at the last one.

    `difference_cosines` are those of the principal angles between the second window and the family a-b, at the end.
    """

    task: ModularAddition
    steps: list[int] = field(default_factory=list)
    train_accuracy: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    eigenvalues: list[Float[Tensor, "mode"]] = field(default_factory=list)
    found: list[Cliffs] = field(default_factory=list)
    first_block: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FAMILIES})
    second_block: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FAMILIES})
    difference_cosines: Float[Tensor, "angle"] | None = None
    learned: LearnedBlock | None = None
    layer_steps: list[int] = field(default_factory=list)
    layers: dict[str, list[LayerReading]] = field(default_factory=dict)

    def at(self, epoch: int) -> int:
        """The row of the record nearest to an epoch."""
        return min(range(len(self.steps)), key=lambda row: abs(self.steps[row] - epoch))

    def ratio(self, position: int, epoch: int) -> float:
        """lambda_position / lambda_(position + 1), counted from one."""
        values = self.eigenvalues[self.at(epoch)]
        return float(values[position - 1] / values[position])


@dataclass(frozen=True)
class LayerReading:
    """One layer's own kernel at an epoch: its cliffs, its gap after the first window, and what that window holds."""

    eigenvalues: Float[Tensor, "mode"]
    positions: list[int]
    ratio: float
    block: dict[str, float]


@dataclass(frozen=True, eq=False)
class LearnedBlock:
    """The block above the largest learned cliff at the end: place and overlaps at every epoch, families by a scan."""

    places: list[tuple[int, int]]
    overlaps: dict[str, list[float]]
    carried: list[str]


def mlp_run(task: ModularAddition, every: int = 10, *, layers_every: int | None = 20) -> MLPRun:
    """Train, and read the kernel every `every` epochs, its layers every `layers_every` (None: not at all)."""
    run = MLPRun(task)
    wanted = min(MODES, task.modulus**2)
    pairs = all_pairs(task.modulus, task.device)
    families = modular_families(pairs.first, pairs.second, task.modulus)
    families = {name: features.cpu() for name, features in families.items()}
    vectors = []
    for epoch in recorded(training(task), every, task.epochs):
        parts = {name: part.cpu() for name, part in entk_by_layer(epoch.model, pairs.inputs).items()}
        modes = spectrum(torch.stack(list(parts.values())).sum(0), wanted)
        _observe(run, epoch, modes, families)
        vectors.append(modes.eigenvectors)
        if layers_every is not None and (epoch.epoch % layers_every == 0 or epoch.epoch == task.epochs):
            run.layer_steps.append(epoch.epoch)
            for name, part in parts.items():
                reading = _layer_reading(spectrum(part, wanted), windows(task.modulus)[0], families)
                run.layers.setdefault(name, []).append(reading)
    first, end = windows(task.modulus)[1]
    run.difference_cosines = subspace_overlap(vectors[-1][:, first:end], families["a-b"]).cosines
    run.learned = learned_block(run.found[-1], vectors, families)
    return run


def first_perfect_epoch(task: ModularAddition, every: int = 10) -> float:
    """The first recorded epoch at which every test pair is right; infinite if there is none. No kernel is computed."""
    epochs = recorded(training(task), every, task.epochs)
    return next((float(now.epoch) for now in epochs if now.test_accuracy == 1.0), math.inf)


def recorded(epochs: Iterator[Epoch], every: int, last: int) -> Iterator[Epoch]:
    """Every so many epochs, and the last one."""
    return (epoch for epoch in epochs if epoch.epoch % every == 0 or epoch.epoch == last)


def windows(modulus: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The paper's windows: after the constant mode as many modes as a and b span, then as many as a+b and a-b."""
    width = 4 * (modulus // 2)
    return (1, 1 + width), (1 + width, 1 + 2 * width)


def learned_block(
    last: Cliffs, vectors: Sequence[Float[Tensor, "row mode"]], families: dict[str, Tensor]
) -> LearnedBlock | None:
    """The block above the largest cliff training made, followed back; None where it made none. No width is told."""
    if last.learned is None or not bool(last.learned.any()):
        return None
    end = int(last.positions[last.sizes.where(last.learned, -torch.inf).argmax()])
    (block,) = [each for each in blocks(last.positions, vectors[-1].shape[1]) if each[1] == end]
    places = followed_blocks(vectors, block)
    overlaps = {
        name: [_held(modes, place, families[name]) for modes, place in zip(vectors, places)] for name in FAMILIES
    }
    return LearnedBlock(places, overlaps, names_carried(vectors[-1], block, families))


def names_carried(vectors: Float[Tensor, "row mode"], block: tuple[int, int], families: dict[str, Tensor]) -> list[str]:
    """Families a block carries by the scan, strongest first; only those it holds the better half of."""
    scan = carried_families(vectors[:, block[0] : block[1]], families, permutations=19)
    return [each.family for each in scan if each.significant and each.overlap.percent > 50]


def _observe(run: MLPRun, epoch: Epoch, modes: Spectrum, families: dict[str, Tensor]) -> None:
    run.steps.append(epoch.epoch)
    run.train_accuracy.append(epoch.train_accuracy)
    run.test_accuracy.append(epoch.test_accuracy)
    run.eigenvalues.append(modes.eigenvalues)
    run.found.append(cliffs(modes.eigenvalues, run.eigenvalues[0]))
    first, second = windows(run.task.modulus)
    for name in FAMILIES:
        run.first_block[name].append(_held(modes.eigenvectors, first, families[name]))
        run.second_block[name].append(_held(modes.eigenvectors, second, families[name]))


def _held(vectors: Float[Tensor, "row mode"], block: tuple[int, int], features: Float[Tensor, "row feature"]) -> float:
    return subspace_overlap(vectors[:, block[0] : block[1]], features).percent


def _layer_reading(modes: Spectrum, block: tuple[int, int], families: dict[str, Tensor]) -> LayerReading:
    values = modes.eigenvalues
    return LayerReading(
        eigenvalues=values,
        positions=cliffs(values).positions.tolist(),
        ratio=float(values[block[1] - 1] / values[block[1]]),
        block={name: _held(modes.eigenvectors, block, families[name]) for name in FAMILIES},
    )
