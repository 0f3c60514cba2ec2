"""The modular-addition MLP: cliffs, Fourier families, layers and their course over training (lin2025, all versions).

Kernel: the mean over outputs, on all p^2 pairs. Blocks come from the cliff detector: the first one is there at
initialisation, and the second is followed as the window of 4 * floor(p/2) modes after it, the dimension of the sum and
difference families together, so that runs without a second cliff have one to look at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels import entk, entk_by_layer, spectrum
from tangentlens.kernels.spectra import Spectrum
from tangentlens.measures.cliffs import Cliffs, cliffs
from tangentlens.measures.families import carried_families, modular_families
from tangentlens.measures.overlaps import subspace_overlap
from tangentlens.studies.modular_addition import Epoch, ModularAddition, all_pairs, training

MODES = 200
FAMILIES = ("a", "b", "a+b", "a-b")


@dataclass(eq=False)
class MLPRun:
    """What one run showed at every recorded epoch, and in more detail at the last one."""

    task: ModularAddition
    steps: list[int] = field(default_factory=list)
    train_accuracy: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    eigenvalues: list[Float[Tensor, "mode"]] = field(default_factory=list)
    found: list[Cliffs] = field(default_factory=list)
    first_block: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FAMILIES})
    second_block: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FAMILIES})
    carried_first: list[str] = field(default_factory=list)
    carried_second: list[str] = field(default_factory=list)
    layers: dict[str, LayerReading] = field(default_factory=dict)

    def at(self, epoch: int) -> int:
        """The row of the record nearest to an epoch."""
        return min(range(len(self.steps)), key=lambda row: abs(self.steps[row] - epoch))

    def ratio(self, position: int, epoch: int) -> float:
        """lambda_position / lambda_(position + 1), counted from one."""
        values = self.eigenvalues[self.at(epoch)]
        return float(values[position - 1] / values[position])


@dataclass(frozen=True)
class LayerReading:
    """One layer's own kernel at the end: its cliffs, its gap after the first block, and what that block holds."""

    positions: list[int]
    ratio: float
    block: dict[str, float]


def mlp_run(task: ModularAddition, every: int = 10) -> MLPRun:
    """Train, and read the kernel every `every` epochs."""
    run = MLPRun(task)
    wanted = min(MODES, task.modulus**2)
    pairs = all_pairs(task.modulus, task.device)
    families = modular_families(pairs.first, pairs.second, task.modulus)
    families = {name: features.cpu() for name, features in families.items()}
    for epoch in recorded(training(task), every, task.epochs):
        modes = spectrum(entk(epoch.model, pairs.inputs).cpu(), wanted)
        _observe(run, epoch, modes, families)
    first, second = windows(run.found[0], task.modulus)
    run.carried_first = names_carried(modes, first, families)
    run.carried_second = names_carried(modes, second, families)
    for name, kernel in entk_by_layer(epoch.model, pairs.inputs).items():
        run.layers[name] = _layer_reading(spectrum(kernel.cpu(), wanted), first, families)
    return run


def first_perfect_epoch(task: ModularAddition, every: int = 10) -> float:
    """The first recorded epoch at which every test pair is right; infinite if there is none. No kernel is computed."""
    epochs = recorded(training(task), every, task.epochs)
    return next((float(now.epoch) for now in epochs if now.test_accuracy == 1.0), math.inf)


def recorded(epochs: Iterator[Epoch], every: int, last: int) -> Iterator[Epoch]:
    """Every so many epochs, and the last one."""
    return (epoch for epoch in epochs if epoch.epoch % every == 0 or epoch.epoch == last)


def windows(initial: Cliffs, modulus: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """First block: between the initial network's two largest cliffs. Second: as many modes as a+b and a-b span, after
    it."""
    largest = initial.largest(2)
    start, end = largest if len(largest) == 2 else (1, 1 + 4 * (modulus // 2))
    return (start, end), (end, end + 4 * (modulus // 2))


def names_carried(modes: Spectrum, block: tuple[int, int], families: dict[str, Tensor]) -> list[str]:
    """Families a block carries by the scan, strongest first; only those it holds the better half of."""
    scan = carried_families(modes.eigenvectors[:, block[0] : block[1]], families, permutations=19)
    return [each.family for each in scan if each.significant and each.overlap.percent > 50]


def _observe(run: MLPRun, epoch: Epoch, modes: Spectrum, families: dict[str, Tensor]) -> None:
    run.steps.append(epoch.epoch)
    run.train_accuracy.append(epoch.train_accuracy)
    run.test_accuracy.append(epoch.test_accuracy)
    run.eigenvalues.append(modes.eigenvalues)
    run.found.append(cliffs(modes.eigenvalues, run.eigenvalues[0]))
    first, second = windows(run.found[0], run.task.modulus)
    for name in FAMILIES:
        run.first_block[name].append(_held(modes, first, families[name]))
        run.second_block[name].append(_held(modes, second, families[name]))


def _held(modes: Spectrum, block: tuple[int, int], features: Float[Tensor, "row feature"]) -> float:
    return subspace_overlap(modes.eigenvectors[:, block[0] : block[1]], features).percent


def _layer_reading(modes: Spectrum, block: tuple[int, int], families: dict[str, Tensor]) -> LayerReading:
    values = modes.eigenvalues
    return LayerReading(
        positions=cliffs(values).positions.tolist(),
        ratio=float(values[block[1] - 1] / values[block[1]]),
        block={name: _held(modes, block, families[name]) for name in FAMILIES},
    )
