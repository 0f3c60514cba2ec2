"""How far a run is: steps against planned ones, what recording costs, when it last wrote, what last went wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

import xarray as xr

from tangentlens.report.labelled import attribute, errors, recorded_steps
from tangentlens.report.sections.recording import overhead_share
from tangentlens.report.words import is_number, number, percent, seconds_in_words


@dataclass(frozen=True)
class Progress:
    """A run at one moment; `end` is the last planned step where the end is known."""

    state: str
    recorded: int
    step: int
    end: int | None
    overhead: float
    silent_for: float
    failed: tuple[dict[str, Any], ...]

    @property
    def over(self) -> bool:
        return self.state in ("finished", "failed")

    @property
    def share(self) -> float | None:
        return min(1.0, self.step / self.end) if self.end else None


def progress(tree: xr.DataTree, now: float | None = None) -> Progress:
    """What a record says of its own progress."""
    steps = recorded_steps(tree)
    planned = attribute(tree, "planned_steps", [])
    seen = attribute(tree, "last_step", None)
    at = max(int(seen) if is_number(seen) else 0, steps[-1] if steps else 0)
    end = int(planned[-1]) if isinstance(planned, list) and planned and is_number(planned[-1]) else None
    return Progress(
        str(tree.attrs.get("state") or "unknown"),
        len(steps),
        at,
        end,
        overhead_share(tree),
        _since(str(tree.attrs.get("updated", "")), time.time() if now is None else now),
        tuple(errors(tree)),
    )


def _since(written: str, now: float) -> float:
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return float("nan")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, now - moment.timestamp())


def in_words(now: Progress) -> list[str]:
    """Short phrases: state, step, cost, silence."""
    where = f"step {now.step:,}" + (f" of {now.end:,}" if now.end else "")
    phrases = [now.state, where, f"{now.recorded:,} steps recorded"]
    if is_number(now.overhead):
        phrases.append(f"recording takes {percent(now.overhead)} of the time")
    if is_number(now.silent_for) and not now.over:
        phrases.append(f"last written {seconds_in_words(now.silent_for)} ago")
    return phrases


def last_error(now: Progress) -> str:
    if not now.failed:
        return ""
    latest = now.failed[-1]
    what = f"{latest.get('type')}: {latest.get('message')}"
    return f"{latest.get('measure')} failed at step {number(latest.get('step'))}: {what}"


def progress_html(now: Progress) -> str:
    """The line at the top of the live page."""
    share = now.share
    bar = f'<progress max="1" value="{share:.4f}" aria-label="progress"></progress>' if share is not None else ""
    state, *rest = in_words(now)
    spans = "".join(f"<span>{escape(phrase)}</span>" for phrase in rest)
    error = last_error(now)
    return f"<strong>{escape(state)}</strong>{bar}{spans}" + (
        f'<span class="error">{escape(error)}</span>' if error else ""
    )


def progress_text(now: Progress, width: int = 24) -> str:
    """The same line for a terminal."""
    share = now.share
    filled = round(width * share) if share is not None else 0
    bar = f"[{'#' * filled}{'.' * (width - filled)}] {percent(share)}  " if share is not None else ""
    error = last_error(now)
    return f"{bar}{'  '.join(in_words(now))}" + (f"\n! {error}" if error else "")
