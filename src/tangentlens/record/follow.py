"""A run out of checkpoints that are already there: each is loaded, measured as one step, and committed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn
from tqdm import tqdm

from tangentlens.capture.probe import probe as checked_probe
from tangentlens.kernels.weights import load_into
from tangentlens.record.asked import check_targets, inputs_and_targets
from tangentlens.record.checkpoints import checkpoints
from tangentlens.record.instruments.applicable import applicable
from tangentlens.record.recorder import Recorder
from tangentlens.record.schedule import every


def follow_checkpoints(
    run: str | Path,
    model: nn.Module,
    probe: Any,
    files: Path | str | Iterable[Path | str],
    *,
    step_pattern: str | None = None,
    **settings: Any,
) -> Path:
    """Record every checkpoint of a folder, glob or list in the order of its step; recorded ones are passed over.

    Weights are read as tensors only: nothing pickled is run. The first checkpoint stands for the network before
    training, and the model is left with the weights of the last. `settings` go to the `Recorder`; without measures all
    that apply are taken at every checkpoint, for no training waits for them.
    """
    given = [files] if isinstance(files, Path | str) else list(files)
    found = checkpoints([Path(file) for file in given], step_pattern)
    load_into(model, next(iter(found.values())))
    if settings.get("measures") is None:  # named, because those a recorder finds by itself come with a bound on time
        given_inputs, targets = inputs_and_targets(probe)
        inputs = checked_probe(given_inputs)
        check_targets(targets, inputs.length)
        settings["measures"] = applicable(model, inputs, targets, settings.get("outputs"))
    with Recorder(run, model, probe, **{"schedule": every(1), "resume": True, **settings}) as recorder:
        left = {step: file for step, file in found.items() if step > max(recorder.steps, default=-1)}
        for step, file in tqdm(left.items(), desc="checkpoints", unit="", disable=None):
            load_into(model, file)
            recorder.observe(step)
    return Path(run)
