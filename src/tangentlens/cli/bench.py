"""``tangentlens bench``: the benchmarks of a checkout, each workload beside the recipe it is compared with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tangentlens
from tangentlens.cli.commands import Bench
from tangentlens.errors import BadInput


def run(settings: Bench) -> int:
    """Run the workloads asked for and print their tables."""
    checkout = Path(tangentlens.__file__).resolve().parents[2]
    if not (checkout / "benchmarks" / "__main__.py").is_file():
        raise BadInput(
            f"the benchmarks are part of a checkout, got a package installed at {checkout}; clone the repository"
        )
    for flag, value in (("--examples", settings.examples), ("--repeats", settings.repeats)):
        if value is not None and value < 1:
            raise BadInput(f"{flag} is at least 1, got {value}")
    flags = [
        word
        for flag, value in (("--examples", settings.examples), ("--repeats", settings.repeats))
        if value is not None
        for word in (flag, str(value))
    ]
    # a process of its own: benchmarks are run from the checkout's root, and keep their peak of memory to themselves
    return subprocess.run([sys.executable, "-m", "benchmarks", *settings.workloads, *flags], cwd=checkout).returncode
