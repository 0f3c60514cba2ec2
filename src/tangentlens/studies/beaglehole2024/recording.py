"""Records of the chain task, from which the report draws plain training beside speed-limited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from tangentlens.record.instruments.ansatz import ansatz
from tangentlens.record.instruments.training import training as training_measures
from tangentlens.record.recorder import Recorder
from tangentlens.record.schedule import log_spaced
from tangentlens.studies.beaglehole2024.chain import Chain
from tangentlens.studies.beaglehole2024.chain_readings import drawn, error
from tangentlens.studies.beaglehole2024.chain_runs import Setting, training
from tangentlens.studies.beaglehole2024.networks import relu_network

SHOWN = ("plain", "quarter init", "speed-limited", "frozen above")


def record_chain(
    folder: Path, settings: Sequence[Setting], *, seed: int = 0, examples: int = 512, width: int = 256
) -> list[Path]:
    """Train once more in the ways that are compared, each into a run of its own inside the folder."""
    data = drawn(Chain(), examples, seed)
    runs = []
    for setting in settings:
        if setting.name not in SHOWN:
            continue
        network = relu_network(data.chain.inputs, width=width, scale=setting.scale, seed=seed)
        runs.append(folder / setting.name.replace(" ", "-"))
        recorder = Recorder(
            runs[-1], network, data.train, [*training_measures(), *ansatz()], log_spaced(20, last=setting.steps),
            seed=seed, title=f"chain task, {setting.name} (beaglehole2024)", settings=asdict(setting),
        )  # fmt: skip
        with recorder:
            for step in training(network, setting, data, seed):
                with torch.no_grad():
                    recorder.observe(step, loss=float(error(network, data.train)))
    return runs
