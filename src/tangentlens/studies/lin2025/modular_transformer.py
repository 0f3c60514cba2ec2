"""The one-layer Transformer: which parameter tensor carries which family, and since when (lin2025 v3, v4).

Kernel: the mean output's gradient (all-pairs mean over the 30 logits, '=' included), for each parameter tensor alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels import entk, entk_by_layer, spectrum
from tangentlens.kernels.tangent import mean_output
from tangentlens.measures.cliffs import cliffs, log_gaps
from tangentlens.measures.families import frequency_shares, key_frequencies, modular_families
from tangentlens.measures.overlaps import subspace_overlap
from tangentlens.studies.lin2025.transformer_model import ModularTransformer, sequences, training

MODES = 40
READ_CLOSELY_TO = 1000  # epochs; the paper's derivative peaks near 150 and once more near 600
TOP, NEXT = (0, 5), (5, 9)  # the paper's windows of modes, first to end
WINDOWS = {"modes 0-4": TOP, "modes 1-4": (1, 5), "modes 5-8": NEXT}


@dataclass(eq=False)
class TensorReading:
    """One parameter tensor's kernel at the end: eigenvalues, cliffs, and what each window holds of each family."""

    eigenvalues: Float[Tensor, "mode"]
    positions: list[int]
    held: dict[str, dict[str, float]]

    def ratio(self, position: int) -> float:
        return float(log_gaps(self.eigenvalues)[position - 1].exp())


@dataclass(eq=False)
class TransformerRun:
    """A run: accuracies over epochs, the read-out's modes over some of them, and every tensor's reading at the end."""

    task: ModularTransformer
    steps: list[int] = field(default_factory=list)
    train_accuracy: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    kernel_steps: list[int] = field(default_factory=list)
    sum_overlap: list[float] = field(default_factory=list)
    readout_eigenvalues: list[Float[Tensor, "mode"]] = field(default_factory=list)
    frequencies: list[int] = field(default_factory=list)
    frequencies_of_modes: list[int] = field(default_factory=list)
    tensors: dict[str, TensorReading] = field(default_factory=dict)

    def readout_ratios(self, position: int, since: int) -> list[float]:
        """The ratio across a drop of the read-out's spectrum, at every step it was looked at from `since` on."""
        late = (values for step, values in zip(self.kernel_steps, self.readout_eigenvalues) if step >= since)
        return [float(values[position - 1] / values[position]) for values in late]


def transformer_run(task: ModularTransformer, every: int = 20) -> TransformerRun:
    """Train and read. Key frequencies come from the finished embedding, so overlaps over epochs are retrospective."""
    run = TransformerRun(task)
    tokens = sequences(task.modulus)
    first, second = tokens[:, 0], tokens[:, 1]
    tops = []
    for now in training(task, every):
        run.steps.append(now.epoch)
        run.train_accuracy.append(now.train_accuracy)
        run.test_accuracy.append(now.test_accuracy)
        if now.epoch <= READ_CLOSELY_TO or now.epoch % 200 == 0:
            run.kernel_steps.append(now.epoch)
            kernel = entk(now.model, tokens, outputs=mean_output(None), parameters="unembedding", dtype=torch.float64)
            modes = spectrum(kernel, NEXT[1] + 1)
            run.readout_eigenvalues.append(modes.eigenvalues)
            tops.append(modes.eigenvectors[:, : TOP[1]])
    run.frequencies = key_frequencies(now.model.embedding[: task.modulus])
    run.frequencies_of_modes = _held_frequencies(tops[-1], first + second, task.modulus)
    chosen = run.frequencies or [1]
    families = modular_families(first, second, task.modulus, chosen)
    run.sum_overlap = [subspace_overlap(modes, families["a+b"]).percent for modes in tops]
    parts = entk_by_layer(now.model, tokens, by="parameter", outputs=mean_output(None), dtype=torch.float64)
    for name, kernel in {**parts, "full": torch.stack(list(parts.values())).sum(0)}.items():
        run.tensors[name] = _tensor_reading(kernel, families)
    return run


def _held_frequencies(modes: Float[Tensor, "row mode"], values: Tensor, modulus: int) -> list[int]:
    """Frequencies of which a block holds more than half of the (cos, sin) plane."""
    shares = frequency_shares(modes, values, modulus)
    return (torch.nonzero(shares > 0.5).flatten() + 1).tolist()


def _tensor_reading(kernel: Float[Tensor, "row row"], families: dict[str, Tensor]) -> TensorReading:
    modes = spectrum(kernel, MODES)
    held = {
        window: {
            name: subspace_overlap(modes.eigenvectors[:, a:b], features).percent for name, features in families.items()
        }
        for window, (a, b) in WINDOWS.items()
    }
    return TensorReading(modes.eigenvalues, cliffs(modes.eigenvalues).positions.tolist(), held)
