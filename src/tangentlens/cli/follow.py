"""``tangentlens follow``: a series of checkpoints, from whatever script wrote them, as one run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tangentlens.cli.commands import Follow
from tangentlens.cli.joined import joined
from tangentlens.cli.measure import told
from tangentlens.cli.shown import show
from tangentlens.cli.target import target
from tangentlens.record import follow_checkpoints


def run(settings: Follow) -> int:
    """Measure every checkpoint in order of its step and write the report; what is in the run already is passed over."""
    with joined() as rank:
        asked = target(settings.target, settings.device)
        run_folder = settings.record or f"runs/{asked.name}"
        follow_checkpoints(
            run_folder,
            asked.model,
            (asked.inputs, asked.targets),
            settings.checkpoints,
            step_pattern=settings.step_pattern,
            **told(asked, run_folder, _kept(settings)),
        )
        if rank == 0:
            show(run_folder)
    return 0


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
