"""``tangentlens follow``: a series of checkpoints, from whatever script wrote them, as one run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tangentlens.cli.commands import Follow
from tangentlens.cli.joined import joined
from tangentlens.cli.measure import told
from tangentlens.cli.shown import show
from tangentlens.cli.target import target
from tangentlens.cli.usable import refuse_unusable
from tangentlens.errors import BadInput
from tangentlens.record import follow_checkpoints, open_record
from tangentlens.record.store import exists


def run(settings: Follow) -> int:
    """Measure every checkpoint in order of its step and write the report; what is in the run already is passed over."""
    with joined() as rank:
        asked = target(settings.target, settings.device)
        run_folder = settings.record or f"runs/{asked.name}"
        if rank == 0:  # the others would meet the run that the first one has just begun
            _refuse_another_commands_run(run_folder)
        settled = told(asked, run_folder, _kept(settings))
        refuse_unusable(asked, settled["measures"])
        follow_checkpoints(
            run_folder,
            asked.model,
            (asked.inputs, asked.targets),
            settings.checkpoints,
            step_pattern=settings.step_pattern,
            **settled,
        )
        if rank == 0:
            show(run_folder)
    return 0


def _refuse_another_commands_run(run_folder: str) -> None:
    """A run's first step is its network before training, and that of another command is another one."""
    if not exists(run_folder):
        return
    made_by = json.loads(open_record(run_folder).attrs.get("settings") or "{}").get("command", "a training script")
    if made_by != "follow":
        raise BadInput(
            f"expected a new run or one that follow made at {run_folder}, got one made by {made_by}; "
            "choose another folder with --record"
        )


def resume(kept: dict, run_folder: str) -> int:
    """Go on after the last recorded checkpoint; those written since are found too."""
    paths = tuple(Path(path) for path in kept.pop("checkpoints"))
    return run(Follow(**kept, checkpoints=paths, record=run_folder))


def _kept(settings: Follow) -> dict:
    """What a resumed run needs to know, from whatever folder it is resumed."""
    places = {
        "target": str(Path(settings.target).absolute()),
        "checkpoints": [str(path.absolute()) for path in settings.checkpoints],
    }
    kept = {name: value for name, value in asdict(settings).items() if name not in ("record", "debug")}
    return {"command": "follow", **kept, **places}
