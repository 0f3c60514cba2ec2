"""Records of the modular-addition MLP, from which the report draws the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.families import all_frequencies, modular_families
from tangentlens.record.instruments.tangent import tangent
from tangentlens.record.instruments.training import training as training_measures
from tangentlens.record.recorder import Recorder
from tangentlens.record.schedule import every
from tangentlens.studies.lin2025.modular_mlp import FAMILIES, MODES
from tangentlens.studies.modular_addition import ModularAddition, Pairs, all_pairs, training

MAPPED_EVERY = 100  # epochs between maps of modes by single waves, the widest of what is recorded


def kept(folder: Path, records: Mapping[str, Any], tasks: Mapping[str, ModularAddition]) -> str:
    """The study's numbers as one zarr store, and each task trained again as a run for the report; how to see them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        record.to_zarr(folder / "lin2025.zarr", group=name, mode="a", consolidated=False)
    for name, task in tasks.items():
        record_mlp(folder / name, task)
    runs = " ".join(f"'{folder / name}'" for name in tasks)
    return f"see them: tangentlens report {runs}; the study's own figures: tangentlens report '{folder}/lin2025.zarr'"


def record_mlp(run: Path, task: ModularAddition) -> None:
    """Train once more, recording every ten epochs: spectra, blocks, and their overlaps with the Fourier families.

    Every hundred epochs also what each mode holds of each single wave.
    """
    pairs = all_pairs(task.modulus, task.device)
    families = modular_families(pairs.first.cpu(), pairs.second.cpu(), task.modulus)
    chosen = {name: families[name] for name in FAMILIES}
    of_modes = [
        replace(measure, schedule=every(MAPPED_EVERY)) if measure.name == "tangent/mode_feature" else measure
        for measure in tangent(chosen, examples=None, modes=MODES, features=_waves(pairs, task.modulus))
    ]
    measures = [*training_measures(), *of_modes]
    recorder = None
    for now in training(task):
        if recorder is None:
            recorder = Recorder(
                run,
                now.model,
                (pairs.inputs, pairs.labels),
                measures,
                every(10),
                seed=task.seed,
                title=run.name,
                settings=asdict(task),
            )
        recorder.observe(now.epoch, loss=now.loss, train_accuracy=now.train_accuracy, test_accuracy=now.test_accuracy)
    if recorder is not None:
        recorder.close()


def _waves(pairs: Pairs, modulus: int) -> dict[str, Float[Tensor, "example phase"]]:
    """Cosine and sine of every family at every frequency."""
    at = {k: modular_families(pairs.first.cpu(), pairs.second.cpu(), modulus, [k]) for k in all_frequencies(modulus)}
    return {f"{family}, k={k}": at[k][family] for family in FAMILIES for k in at}
