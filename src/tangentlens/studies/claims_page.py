"""The table of claims as a page of documentation; what people wrote below the table stays when it is made anew."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tangentlens.studies.claims import Study, Verdict
from tangentlens.studies.claims_table import shown

READING = "## Reading the table"
_HEAD = ("claim", "", "where", "claimed (source)", "seen", "spread", "seeds", "baseline", "accepted", "holds")


@dataclass(frozen=True)
class Seen:
    """When, how and on what the numbers were seen."""

    command: str
    seconds: float
    day: date
    machine: str

    def __str__(self) -> str:
        return f"Seen on {self.day} with {self.machine}: `{self.command}`, {self.seconds:,.0f} seconds."


def this_machine(device: str = "cpu") -> str:
    """What the numbers depend on, in words."""
    import torch

    cores = len(os.sched_getaffinity(0))
    on = f"{cores} {'core' if cores == 1 else 'cores'} of {platform.machine()}" if device == "cpu" else device
    return f"torch {torch.__version__.partition('+')[0]} on {on}"


def claims_page(study: Study, verdicts: Sequence[Verdict], seen: Seen, notes: Sequence[str] = ()) -> str:
    """Markdown: what it is, how many claims hold, a row per claim, and a line per claim with more to say."""
    holding = sum(verdict.holds for verdict in verdicts)
    parts = [
        f"# {study.name}: {study.title}",
        f"Claims of {study.paper}, each with the number seen here. {seen}",
        f"**{holding} of {len(verdicts)} claims hold.** A claim that does not hold is a result: it stands below with "
        "what was seen.",
        "The source says whose the claimed number is: the paper's own, from the author's code, second-hand (read in "
        "somebody else's summary), or an independent run. `seen` is the median over the seeds, with their spread; "
        "`baseline` is the same quantity under a null: chance, the initial network, a control.",
        "\n".join([_row(_HEAD), "|---" * len(_HEAD) + "|", *(_row(_cells(verdict)) for verdict in verdicts)]),
    ]
    beside = [f"- {verdict.id}: {_text(verdict.note)}" for verdict in verdicts if verdict.note]
    if beside:
        parts.append("## Beside the numbers\n\n" + "\n".join(beside))
    if notes:
        parts.append("## Notes of the run\n\n" + "\n".join(f"- {_text(note)}" for note in notes))
    return "\n\n".join(parts) + "\n"


def write_page(page: str, file: Path) -> None:
    """Put the page where it belongs; an existing page keeps what stands from `## Reading the table` on."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    _, heading, written = before.partition(READING)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page + (f"\n{heading}{written}" if heading else ""), encoding="utf-8")


def _cells(verdict: Verdict) -> tuple[str, ...]:
    sentence = f"{verdict.sentence} [{verdict.unit}]" if verdict.unit else verdict.sentence
    spread = f"{shown(verdict.spread[0])} .. {shown(verdict.spread[1])}" if verdict.spread else "-"
    claimed = f"{shown(verdict.claimed)} ({verdict.source})"
    holds = "yes" if verdict.holds else "**no**"
    cells = (verdict.id, sentence, verdict.where, claimed, shown(verdict.ours), spread, str(verdict.seeds),
             shown(verdict.baseline), verdict.tolerance, holds)  # fmt: skip
    return tuple(map(_text, cells[:-1])) + cells[-1:]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(words: str) -> str:
    """Bars would end a cell, stars and underscores begin a stress, and angle brackets a tag."""
    for sign in "\\|*_<":
        words = words.replace(sign, "\\" + sign)
    return words
