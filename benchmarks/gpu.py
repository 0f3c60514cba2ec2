"""Every workload at the size of one large GPU, in one call of at most four minutes: `python benchmarks/gpu.py`.

Rows run in a child process, the most important ones first; one that fails, or takes longer than its share of the time,
is reported and left, and the rest go on. The table comes at the end; with OUT set, all numbers go to OUT/gpu.json.

Time: median of up to three calls after one to warm up, and from-to. Floor: what the plan's counted operations
(symmetric) and one capture of every example take at this card's own float32 matmul rate, or its bytes (kernel and
gradients, once) at its own copy rate, whichever is longer. Error: against one backward pass per output of the first
examples, in float64. `--toy` runs on any processor.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]  # runs where nothing is installed but torch, jaxtyping and scipy

BUDGET = 225.0  # seconds for all rows
STARTING = 60.0  # of them a process may take to import and to measure its rates


def listed(toy: bool) -> dict[str, dict[str, Any]]:
    """Row name -> what to do and the most seconds it may take, in the order of importance."""
    from benchmarks.gpu_rows import rows

    return rows(toy)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--rows", nargs="+", help="only these")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, default=BUDGET)
    asked = parser.parse_args()
    names = asked.rows or list(listed(asked.toy))
    if asked.child:
        from benchmarks.gpu_rows import run

        run(names, asked.toy)
        return 0
    found = gathered(names, asked.toy, time.monotonic() + asked.budget)
    print(table(found))
    if folder := os.environ.get("OUT"):
        Path(folder, "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


def gathered(names: list[str], toy: bool, deadline: float) -> dict[str, Any]:
    """Results by row; a child that hangs or dies takes its one row with it, and another goes on with the rest."""
    caps = {name: row["cap"] for name, row in listed(toy).items()}
    found: dict[str, Any] = {"machine": {}, "rows": {}}
    left = list(names)
    while left and time.monotonic() < deadline:
        command = [sys.executable, __file__, "--child", "--rows", *left, *(["--toy"] if toy else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
            why = _listen(child, left, caps, found, deadline)
            child.kill()
        if left and why:
            found["rows"][left.pop(0)] = {"failed": why}
    for name in left:
        found["rows"][name] = {"failed": "no time left"}
    return found


def _listen(
    child: subprocess.Popen[str], left: list[str], caps: dict[str, float], found: dict[str, Any], deadline: float
) -> str:
    """Take rows as they are done; the reason why the first of those left will not be, or nothing."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(child, lines), daemon=True).start()
    said, patience = "ended without a word", STARTING
    while left:
        try:
            line = lines.get(timeout=max(0.0, min(patience, deadline - time.monotonic())))
        except queue.Empty:
            return "no time left" if time.monotonic() >= deadline else f"given up after {patience:.0f} s"
        if not line:
            return said
        if not line.startswith("{"):
            said = line.strip() or said
            continue
        told = json.loads(line)
        if "machine" in told:
            found["machine"] = told["machine"]
        else:
            found["rows"][told.pop("row")] = told
            left.pop(0)
        patience = caps[left[0]] if left else 0.0
    return ""


def _read(child: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Every line as it comes; an empty one when the child has ended."""
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line)
    lines.put("")


def table(found: dict[str, Any]) -> str:
    machine = found["machine"]
    lines = [
        f"{machine.get('device', 'no device')}, {machine.get('made', machine.get('torch'))}: float32 "
        f"{machine.get('rate', 0) / 1e12:.3g} TFLOP/s, float64 {machine.get('rate64', 0) / 1e12:.3g}, copies "
        f"{machine.get('copy', 0) / 1e9:.0f} GB/s",
        f"{'row':<42} {'time':>9} {'from-to':>17} {'floor':>9} {'share':>6} {'peak':>9} {'error':>8}  notes",
    ]
    for name, row in found["rows"].items():
        if "failed" in row:
            lines.append(f"{name:<42} {row['failed'][:120]}")
            continue
        seconds = row["seconds"]
        between = f"{_time(min(seconds))}-{_time(max(seconds))}"
        floor, share = "-", "-"
        if row["floor"]:
            floor, share = _time(row["floor"]), f"{row['floor'] / median(seconds):.0%}"
        lines.append(
            f"{name:<42} {_time(median(seconds)):>9} {between:>17} {floor:>9} {share:>6} "
            f"{row['peak'] / 2**30:>5.2f} GiB {row['error']:>8.1e}  {row['note']}"
        )
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


if __name__ == "__main__":
    sys.exit(main())
