"""``tangentlens measure``: one model on one probe, as a record of one step and its report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tangentlens.capture.probe import probe
from tangentlens.cli.commands import Measure
from tangentlens.cli.joined import joined
from tangentlens.cli.shown import show
from tangentlens.cli.target import Target, target
from tangentlens.cli.usable import refuse_unusable
from tangentlens.record import Measure as Recorded, Recorder, Snapshot, every
from tangentlens.record.instruments import applicable


def run(settings: Measure) -> int:
    """Measure the target and write record and report; under torchrun all processes share the rows, the first writes."""
    with joined() as rank:
        asked = target(settings.target, settings.device)
        run_folder = settings.record or f"runs/{asked.name}"
        settled = told(asked, run_folder, _kept(settings))
        refuse_unusable(asked, settled["measures"])
        settled["measures"] = counted(settled["measures"])
        with Recorder(
            run_folder,
            asked.model,
            (asked.inputs, asked.targets),
            schedule=every(1),
            **settled,
        ) as recorder:
            recorder.observe(0)
        if rank == 0:
            show(run_folder)
    return 0


def resume(kept: dict, run_folder: str) -> int:
    """A measure that did not finish is made again from its target."""
    return run(Measure(**kept, record=run_folder))


def told(asked: Target, run_folder: str, kept: dict) -> dict[str, Any]:
    """What a recorder is told about a target: every instrument that applies, at every step it is shown.

    The instruments are named, because those a recorder finds by itself come with a bound on their share of the run
    time, and here no training waits for them.
    """
    return {
        "measures": applicable(asked.model, probe(asked.inputs), asked.targets, asked.outputs),
        "outputs": asked.outputs,
        "ranks": True,  # processes that torchrun started share the rows; one alone has them all
        "title": Path(run_folder).name,
        "settings": kept,
    }


def counted(measures: list[Recorded]) -> list[Recorded]:
    """The same measures, with a bar on the terminal that moves as each of them is done."""
    bar = tqdm(total=len(measures), desc="measuring", unit="measure", disable=None, leave=False)

    def ticking(measure: Recorded) -> Recorded:
        def compute(snapshot: Snapshot) -> Any:
            try:
                return measure.compute(snapshot)
            finally:
                bar.update()

        return replace(measure, compute=compute)

    return [ticking(measure) for measure in measures]


def _kept(settings: Measure) -> dict:
    """What a resumed run needs to know, from whatever folder it is resumed."""
    kept = {name: value for name, value in asdict(settings).items() if name not in ("record", "debug")}
    return {"command": "measure", **kept, "target": str(Path(settings.target).absolute())}
