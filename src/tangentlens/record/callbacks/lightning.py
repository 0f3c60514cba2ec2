"""Lightning: `Trainer(callbacks=[LightningRecorder("runs/mine", probe)])`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from tangentlens.record.callbacks.logged import logged
from tangentlens.record.recorder import Recorder
from tangentlens.record.schedule import log_spaced


class LightningRecorder(Callback):
    """Records at optimiser steps: step 0 before training, then `trainer.global_step`, with the metrics the module logs.

    Takes the arguments of `Recorder` but the model; `model` picks the part of the module to measure. Without a schedule
    fifty log-spaced steps up to the trainer's own end. Waits for the record before a checkpoint is saved.
    """

    def __init__(
        self,
        run: str | Path,
        probe: Any,
        *,
        model: Callable[[LightningModule], nn.Module] | None = None,
        **settings: Any,
    ) -> None:
        self.run, self.probe, self.settings = run, probe, settings
        self.model = model or (lambda module: module)
        self.recorder: Recorder | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.recorder is None or self.recorder.closed:
            last = _last_step(trainer, pl_module)
            settings = {"schedule": log_spaced(last=last) if last else None, **self.settings}
            if self.recorder is not None:  # a second fit goes on with the run of the first
                settings["resume"] = True
            self.recorder = Recorder(self.run, self.model(pl_module), self.probe, **settings)
            self.recorder.observe(trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        # with accumulated gradients several batches make one step, and only the last one moves the counter
        if self.recorder is not None and trainer.global_step != self.recorder.shown:
            self.recorder.observe(trainer.global_step, **logged(trainer.callback_metrics, self.recorder.taken))

    def on_save_checkpoint(self, *_: Any) -> None:
        if self.recorder is not None and not self.recorder.closed:
            self.recorder.flush()

    def on_train_end(self, *_: Any) -> None:
        if self.recorder is not None:
            self.recorder.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self.recorder is not None:
            self.recorder.abandon()


def _last_step(trainer: Trainer, module: LightningModule) -> int | None:
    """The trainer's last `global_step` where its end is known; in manual optimisation each optimiser's step counts."""
    last = trainer.estimated_stepping_batches
    if not 1 <= last < float("inf"):
        return None
    if module.automatic_optimization:
        return int(last)
    every = int(last) * len(trainer.optimizers)
    return min(every, trainer.max_steps) if trainer.max_steps > 0 else every
