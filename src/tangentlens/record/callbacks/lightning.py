"""Lightning: `Trainer(callbacks=[LightningRecorder("runs/mine", probe)])`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

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
        if self.recorder is None:
            last = trainer.estimated_stepping_batches
            known = 1 <= last < float("inf")
            settings = {"schedule": log_spaced(last=int(last)) if known else None, **self.settings}
            self.recorder = Recorder(self.run, self.model(pl_module), self.probe, **settings)
            self.recorder.observe(trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        # with accumulated gradients several batches make one step, and only the last one moves the counter
        if self.recorder is not None and trainer.global_step != self.recorder.shown:
            self.recorder.observe(trainer.global_step, **scalars(trainer.callback_metrics))

    def on_save_checkpoint(self, *_: Any) -> None:
        if self.recorder is not None:
            self.recorder.flush()

    def on_train_end(self, *_: Any) -> None:
        if self.recorder is not None:
            self.recorder.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self.recorder is not None:
            self.recorder.abandon()


def scalars(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Logged numbers under names a record can hold: a slash would be a group."""
    return {
        name.replace("/", "_"): value for name, value in metrics.items() if getattr(value, "numel", lambda: 1)() == 1
    }
