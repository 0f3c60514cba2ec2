"""The table of claims as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tangentlens.studies.claims import Verdict

_WIDEST = 20  # characters of a cell; longer ones go below their row


def table(verdicts: Sequence[Verdict], *, width: int = 118) -> str:
    """The claims as plain text: one line of numbers each, its sentence below, failures named again at the end."""
    id_width = max([len(verdict.id) for verdict in verdicts] + [2])
    lines = [_row(id_width, "id", "holds", "claimed", "ours", "spread", "baseline", "accepted"), "-" * width]
    for verdict in verdicts:
        spread = f"{shown(verdict.spread[0])} .. {shown(verdict.spread[1])}" if verdict.spread else ""
        cells = (shown(verdict.claimed), shown(verdict.ours), spread, shown(verdict.baseline))
        short = [cell if len(cell) <= _WIDEST else "below" for cell in cells]
        lines.append(_row(id_width, verdict.id, "yes" if verdict.holds else "NO", *short, verdict.tolerance))
        indent = " " * (id_width + 2)
        sentence = (
            f"{verdict.sentence}{f' [{verdict.unit}]' if verdict.unit else ''} ({verdict.where}; {verdict.source})"
        )
        below = [sentence]
        below += [
            f"{name}: {cell}"
            for name, cell in zip(("claimed", "ours", "spread", "baseline"), cells)
            if len(cell) > _WIDEST
        ]
        below += [f"note: {verdict.note}"] if verdict.note else []
        for text in below:
            lines += textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ")
    failing = [verdict.id for verdict in verdicts if not verdict.holds]
    lines.append("-" * width)
    seeds = sorted({verdict.seeds for verdict in verdicts})
    lines.append(f"{len(verdicts) - len(failing)} of {len(verdicts)} claims hold; seeds per claim: {seeds}")
    if failing:
        lines.append(f"not holding: {', '.join(failing)}")
    return "\n".join(lines)


def _row(id_width: int, *cells: str) -> str:
    widths = (id_width, 5, 14, 14, _WIDEST, 14, 0)
    left_aligned = (0, 1, 6)
    padded = (
        cell.ljust(width) if column in left_aligned else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths))
    )
    return "  ".join(padded).rstrip()


def shown(value: float | str | None) -> str:
    """A number to four significant figures, text as it is, nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:.4g}"
