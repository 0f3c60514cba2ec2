"""Hugging Face: `Trainer(callbacks=[HuggingFaceRecorder("runs/mine", probe)])`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tangentlens.record.callbacks.logged import logged
from tangentlens.record.recorder import Recorder
from tangentlens.record.schedule import log_spaced


class HuggingFaceRecorder(TrainerCallback):
    """Records at optimiser steps, `state.global_step`, with the numbers the trainer last logged.

    Takes the arguments of `Recorder` but the model. Without a schedule fifty log-spaced steps up to the trainer's last.
    Waits for the record when a checkpoint is saved.
    """

    def __init__(self, run: str | Path, probe: Any, **settings: Any) -> None:
        self.run, self.probe, self.settings = run, probe, settings
        self.recorder: Recorder | None = None
        self._logged: dict[str, Any] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        model: nn.Module = given["model"]
        last = state.max_steps
        settings = {"schedule": log_spaced(last=last) if last > 0 else None, "seed": args.seed, **self.settings}
        if self.recorder is not None:  # training again goes on with the run
            settings["resume"] = True
        self.recorder = Recorder(self.run, model, self.probe, **settings)
        self.recorder.observe(state.global_step)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        if self.recorder is not None:
            self._logged.update(logged(logs or {}, self.recorder.taken))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.recorder is not None and not self.recorder.closed:
            self.recorder.observe(state.global_step, **self._logged)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.recorder is not None and not self.recorder.closed:
            self.recorder.flush()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.recorder is not None:
            self.recorder.close()
