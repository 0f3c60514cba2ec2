"""The table of one workload: every peer's row, in the order of time, ratios to tangentlens."""

from __future__ import annotations

import re
from statistics import median
from typing import Any

HEAD = ("peer", "time", "from-to", "slower", "peak", "memory", "error", "Gflop", "share of matmul rate")


def table(title: str, rows: list[dict[str, Any]]) -> str:
    """Peak is the whole process's; flops are those its library counts, blank where it counts none."""
    done = sorted((row for row in rows if "failed" not in row), key=lambda row: median(row["seconds"]))
    ours = next((row for row in done if row["peer"] == "tangentlens"), None)
    lines = [HEAD, *(_cells(row, ours) for row in done)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    shown = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    failed = [f"{named(row)}: {row['failed']}" for row in rows if "failed" in row]
    return "\n".join([title, *shown, *failed, *_made_with(done)])


def markdown(title: str, rows: list[dict[str, Any]]) -> str:
    """The same table for a page of documentation."""
    measured = [row for row in rows if "failed" not in row]
    done = len(measured)
    cells = [re.split(r"  +", line.strip()) for line in table(title, rows).splitlines()[1 : 2 + done]]
    body = [f"| {' | '.join(each)} |" for each in cells]
    failed = [f"- {named(row)}: {row['failed']}" for row in rows if "failed" in row]
    shown = "\n".join([body[0], "|---|" + "--:|" * (len(HEAD) - 1), *body[1:]])
    parts = [f"### {title}", shown, "\n".join(failed), "".join(_made_with(measured))]
    return "\n\n".join(part for part in parts if part)


def _made_with(rows: list[dict[str, Any]]) -> list[str]:
    """Date and versions, each package once; where peers have different ones, all of them."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for package, version in row.get("versions", {}).items():
            found.setdefault(package, []).extend([version] if version not in found.get(package, []) else [])
    days = sorted({row["date"] for row in rows if "date" in row})
    said = [f"{package} {' and '.join(each)}" for package, each in sorted(found.items())]
    return [f"Measured {' to '.join(days)}: {', '.join(said)}."] if days else []


def named(row: dict[str, Any]) -> str:
    return f"{row['peer'].replace('_', '-').replace('torch-func', 'torch.func')}, {row['method']}"


def _cells(row: dict[str, Any], ours: dict[str, Any] | None) -> tuple[str, ...]:
    time = median(row["seconds"])
    slower = f"{time / median(ours['seconds']):.3g}x" if ours else "-"
    more = f"{row['peak'] / ours['peak']:.2g}x" if ours else "-"
    flops, share = "-", "-"
    if row["flops"]:
        flops, share = f"{row['flops'] / 1e9:.4g}", f"{row['flops'] / time / row['rate']:.0%}"
    spread = f"{min(row['seconds']):.3g}-{max(row['seconds']):.3g}"
    peak = f"{row['peak'] / 2**20:.0f} MiB"
    return named(row), f"{time:.3g} s", spread, slower, peak, more, f"{row['error']:.1e}", flops, share
