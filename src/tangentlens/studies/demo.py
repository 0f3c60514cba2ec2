"""The demo: a small network that first memorises modular addition and then understands it, seen by every instrument."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tangentlens.measures.families import modular_families
from tangentlens.record import Measure, Recorder, log_spaced
from tangentlens.record.instruments.ansatz import ansatz
from tangentlens.record.instruments.forward import forward
from tangentlens.record.instruments.tangent import tangent
from tangentlens.record.instruments.training import training as training_measures
from tangentlens.studies.modular_addition import ModularAddition, Pairs, all_pairs, training

STEPS = 50
FAMILIES = ("a", "b", "a+b", "a-b")


@dataclass(frozen=True)
class Cost:
    """Seconds the demo's network trained, and seconds that recording it took on top, everything included."""

    training: float
    recording: float
    steps: int

    def __str__(self) -> str:
        beside = f"{self.recording / self.training:.0%} of the training time" if self.training > 0 else "no training"
        return f"training took {self.training:.1f} s, recording {self.steps} steps {self.recording:.1f} s: {beside}"


def recorded_demo(run: str | Path, steps: int | None = None, settings: dict[str, Any] | None = None) -> Cost:
    """Train and record fifty log-spaced steps; gives what the recording cost.

    The training is repeatable, so that an interrupted demo goes on: what is recorded is not measured again.
    """
    task = ModularAddition() if steps is None else replace(ModularAddition(), epochs=steps)
    pairs = all_pairs(task.modulus)
    epochs = training(task)
    start = next(epochs)
    recorder = Recorder(
        run,
        start.model,
        (pairs.inputs, pairs.targets),
        instruments(pairs, task),
        log_spaced(STEPS, last=task.epochs),
        resume=True,
        seed=task.seed,
        title="modular addition",
        settings={**asdict(task), **(settings or {})},
    )
    with recorder, tqdm(total=task.epochs, desc="training and measuring", unit="step", disable=None) as progress:
        for now in chain((start,), epochs):
            scalars = {"loss": now.loss, "train_accuracy": now.train_accuracy, "test_accuracy": now.test_accuracy}
            recorder.observe(now.epoch, **scalars)
            progress.update(now.epoch > 0)
        recorder.close()
        return Cost(recorder.clock.trained, recorder.clock.spent, len(recorder.steps))


def instruments(pairs: Pairs, task: ModularAddition) -> list[Measure]:
    """All that apply to a network without words, on the whole addition table, with its known features named."""
    known = modular_families(pairs.first, pairs.second, task.modulus)
    families = {name: known[name] for name in FAMILIES}
    return [*training_measures(), *tangent(families, examples=None), *forward(), *ansatz()]
