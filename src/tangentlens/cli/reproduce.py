"""``tangentlens reproduce``: a paper's claims, each with the number seen here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from time import monotonic

from tangentlens.cli.commands import Reproduce
from tangentlens.cli.devices import refuse_unusable_device
from tangentlens.errors import BadInput, ClaimOutsideTolerance
from tangentlens.studies import STUDY_NAMES, Study, StudyOptions, StudyResult, Verdict, study, write_claims
from tangentlens.studies.claims_page import Seen, claims_page, this_machine, write_page


def run(settings: Reproduce) -> int:
    """Run the studies asked for, print their tables; exit status 4 where a claim does not hold."""
    if settings.paper not in (*STUDY_NAMES, "all"):
        raise BadInput(f"PAPER is one of {', '.join(STUDY_NAMES)} or all, got {settings.paper!r}")
    if settings.seeds is not None and settings.seeds < 1:
        raise BadInput(f"--seeds is at least 1, got {settings.seeds}")
    refuse_unusable_device(settings.device)
    names = STUDY_NAMES if settings.paper == "all" else (settings.paper,)
    verdicts: list[Verdict] = []
    for name in names:
        chosen = study(name)
        print(f"{chosen.title}\n{chosen.paper}\n", flush=True)
        start = monotonic()
        result = chosen.run(options(settings, name, apart=len(names) > 1))
        print(result, flush=True)
        print()
        verdicts += result.verdicts
        if settings.json is not None:  # after every study: a later one that is killed takes nothing with it
            settings.json.parent.mkdir(parents=True, exist_ok=True)
            write_claims(verdicts, settings.json)
        if settings.pages is not None:
            _write_page(settings, chosen, result, monotonic() - start)
    failing = [verdict.id for verdict in verdicts if not verdict.holds]
    if failing:
        raise ClaimOutsideTolerance(
            f"{len(failing)} of {len(verdicts)} claims do not hold: {', '.join(failing)}; the table says what was seen"
        )
    return 0


def options(settings: Reproduce, name: str, *, apart: bool) -> StudyOptions:
    """What the study is told; each of several studies gets a folder of its own."""
    run_folder = settings.record / name if settings.record is not None and apart else settings.record
    data = settings.data or (Path(os.environ["TANGENTLENS_DATA"]) if "TANGENTLENS_DATA" in os.environ else None)
    told = StudyOptions(quick=settings.quick, data=data, run=run_folder, device=settings.device)
    if settings.seeds is None:
        return replace(told, seeds=study(name).quick_seeds) if settings.quick else told
    return replace(told, seeds=settings.seeds)


def _write_page(settings: Reproduce, chosen: Study, result: StudyResult, seconds: float) -> None:
    assert settings.pages is not None
    words = ["tangentlens reproduce", chosen.name, "--quick" if settings.quick else ""]
    words += [f"--seeds {settings.seeds}" if settings.seeds is not None else ""]
    seen = Seen(" ".join(filter(None, words)), seconds, date.today(), this_machine(settings.device))
    here = options(settings, chosen.name, apart=settings.paper == "all")
    notes = [_without(note, {"DATA": here.data, "RECORD": here.run}) for note in result.notes]
    write_page(claims_page(chosen, result.verdicts, seen, notes), settings.pages / f"{chosen.name}.md")


def _without(words: str, folders: Mapping[str, Path | None]) -> str:
    """A page is read elsewhere: folders of this machine are named by what they are."""
    for name, folder in folders.items():
        words = words.replace(str(folder), name) if folder is not None else words
    return words
