"""``tangentlens resume``: go on with a run that did not finish, by what it stored of itself."""

from __future__ import annotations

import json
from importlib import import_module

from tangentlens.cli.commands import Resume
from tangentlens.errors import BadInput
from tangentlens.record import open_record, recorded_steps


def run(settings: Resume) -> int:
    """Do what the run's own command would do next; a training script's run can only be resumed by that script."""
    tree = open_record(settings.run)
    kept = json.loads(tree.attrs.get("settings") or "{}")
    command = kept.pop("command", None)
    if command not in ("measure", "follow", "demo"):
        steps = recorded_steps(tree)
        raise BadInput(
            f"{settings.run} was recorded by a training script, which alone can go on with it: start it again from its "
            f"checkpoint with Recorder({settings.run!r}, ..., resume=True); what is recorded "
            f"(up to step {steps[-1] if steps else 'none'}) is kept and not measured twice"
        )
    if tree.attrs.get("state") == "finished" and command == "measure":
        raise BadInput(f"{settings.run} is finished; see it with: tangentlens report {settings.run}")
    return int(import_module(f"tangentlens.cli.{command}").resume(kept, settings.run))
