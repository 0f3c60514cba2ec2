"""``tangentlens demo``: train, record, report: what a small network learned, and when."""

from __future__ import annotations

from tangentlens.cli.commands import Demo
from tangentlens.cli.shown import show
from tangentlens.errors import BadInput
from tangentlens.studies.demo import recorded_demo


def run(settings: Demo) -> int:
    """Train a network on addition modulo 29, record it, and print its verdict and where its page is."""
    if settings.steps is not None and settings.steps < 1:
        raise BadInput(f"--steps is at least 1, got {settings.steps}")
    kept = {"command": "demo", "steps": settings.steps}
    print("A two-layer network learns a + b modulo 29 from 70 % of the table. When does it understand, and what?")
    print(f"{recorded_demo(settings.record, settings.steps, kept)}, every instrument on all 841 pairs")
    show(settings.record)
    return 0


def resume(kept: dict, run_folder: str) -> int:
    """The training is repeated; what is in the record already is not measured again."""
    return run(Demo(steps=kept.get("steps"), record=run_folder))
