"""Every number of a recorded step, also on a dashboard: `Recorder(..., mirrors=[tensorboard("logs")])`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PREFIX = "tangentlens/"


def tensorboard(folder: str | Path | None = None, writer: Any = None) -> Callable[[int, Mapping[str, float]], None]:
    """To TensorBoard, in a folder or through the SummaryWriter a script already has."""
    if writer is None:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(folder) if folder is not None else None)

    def show(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(PREFIX + name, value, step)
        writer.flush()

    return show


def weights_and_biases(run: Any = None) -> Callable[[int, Mapping[str, float]], None]:
    """To the W&B run a script has begun, on an axis of its own: W&B's step must never go back, and may be ahead."""
    if run is None:
        import wandb

        run = wandb.run
        if run is None:
            raise ValueError("expected a W&B run, got none; call wandb.init() before, or pass run=")
    run.define_metric(f"{PREFIX}step")
    run.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")

    def show(step: int, values: Mapping[str, float]) -> None:
        run.log({f"{PREFIX}step": step, **{PREFIX + name: value for name, value in values.items()}})

    return show
