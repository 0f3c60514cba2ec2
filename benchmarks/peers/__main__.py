"""Every peer on every workload, each in its own process and environment; a table per workload and kernel."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.isolated import available_memory
from benchmarks.peers.environments import CHECKOUT, FOLDER, PEERS, python_of
from benchmarks.peers.table import markdown, table
from benchmarks.workloads import WORKLOADS, Workload, toy, written


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument(
        "--kernels", nargs="+", default=["full", "averaged", "top200"], help="those of a workload to ask for"
    )
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="a method is not run again beyond this time")
    parser.add_argument("--patience", type=float, default=400.0, help="seconds after which a process is given up")
    parser.add_argument("--memory", type=int, default=0, help="bytes a process may hold (0: most of what is free)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="where to write all numbers")
    parser.add_argument("--markdown", action="store_true", help="tables as in docs/benchmarks.md")
    parser.add_argument("--toy", action="store_true", help="tiny sizes: does everything run?")
    asked = parser.parse_args(arguments)
    found = []
    for name in asked.workloads:
        workload = toy(WORKLOADS[name]) if asked.toy else WORKLOADS[name]
        file = written(workload, FOLDER / ("toy" if asked.toy else "workloads"))
        for kernel in (each for each in workload.kernels if each in asked.kernels):
            rows = [
                {"peer": peer, "method": method, **measured(workload, file, kernel, peer, method, asked)}
                for peer in asked.peers
                for method in PEERS[peer]
            ]
            found.append({"workload": name, "kernel": kernel, "examples": workload.examples, "rows": rows})
            print((markdown if asked.markdown else table)(workload.titled(kernel), rows), end="\n\n", flush=True)
            if asked.json:
                asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def measured(
    workload: Workload, file: Path, kernel: str, peer: str, method: str, asked: argparse.Namespace
) -> dict[str, Any]:
    """What the process says, or why it said nothing."""
    memory = asked.memory or int(0.85 * available_memory())
    command = [str(python_of(peer)), "-m", f"benchmarks.peers.{peer}.run", str(file), kernel, method]
    for flag in ("repeats", "seconds", "threads"):
        command += [f"--{flag}", str(getattr(asked, flag))]
    threads = {name: str(asked.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = {**os.environ, **threads, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    try:
        ended = subprocess.run(
            [*command, "--memory", str(memory)], cwd=CHECKOUT, env=environment, capture_output=True, text=True,
            timeout=asked.patience,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {asked.patience:.0f} s"}
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        said = (ended.stderr.strip().splitlines() or ["nothing said"])[-1]
        return {"failed": f"ended with exit code {ended.returncode}: {said}"[:160]}
    return dict(json.loads(lines[-1]))


if __name__ == "__main__":
    sys.exit(main())
