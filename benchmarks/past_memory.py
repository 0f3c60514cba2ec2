"""An averaged kernel of MNIST larger than memory: written to disk, killed on the way, resumed, and decomposed.

    python -m benchmarks.past_memory --examples 60000 --out /tmp/mnist-kernel --kill 0.4 --memory 6

Every stage is a process of its own, so that its peak memory is its own; with --memory the system refuses it more. The
modes found from the tiles are then put to the model's product, which knows nothing of the disk: K v by gradients
against lambda v.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.versions import described
from tangentlens.errors import BadInput
from tangentlens.kernels import entk, entk_product
from tangentlens.kernels.product import averaged
from tangentlens.kernels.stored import StoredKernel, open_kernel
from tangentlens.kernels.top_spectrum import top_spectrum
from tangentlens.studies.datasets import mnist

WIDTHS = [784, 256, 256, 10]


@dataclass(frozen=True)
class Ended:
    """How a stage went."""

    seconds: float
    peak: float
    """GiB of resident memory, at most."""
    found: dict[str, Any]


def network() -> nn.Module:
    """The same weights in every process."""
    torch.manual_seed(0)
    return models.mlp(WIDTHS)


def images(options: argparse.Namespace) -> Tensor:
    return mnist("train", options.data, examples=options.examples).inputs.flatten(1).float()


def write(options: argparse.Namespace) -> dict[str, Any]:
    stored = entk(network(), images(options), out=options.out)
    return {"size": stored.nbytes}


def modes(options: argparse.Namespace) -> dict[str, Any]:
    """The largest modes from the tiles, and the route that was taken."""
    found = top_spectrum(network(), images(options), modes=options.modes, stored=_stored(options), dtype=torch.float32)
    torch.save((found.eigenvalues, found.eigenvectors), _side(options, "modes.pt"))
    return {
        "route": found.method,
        "largest residual": float(found.residuals.max()),
        "converged": int(found.converged.sum()),
        "first": float(found.eigenvalues[0]),
        "last": float(found.eigenvalues[-1]),
    }


def check(options: argparse.Namespace) -> dict[str, Any]:
    """What the model's product makes of them: each eigenvalue from v K v, and how far K v is from lambda v.

    Random directions beside them bound the distance of the two operators, so that a mode the disk had missed would
    show: eigenvalues of symmetric operators differ by no more than the operators do.
    """
    values, vectors = torch.load(_side(options, "modes.pt"))
    random = torch.linalg.qr(torch.randn(len(vectors), 8, dtype=vectors.dtype)).Q
    product = entk_product(network(), images(options), dtype=torch.float32)
    images_ = averaged(product)(torch.cat([vectors, random], 1).float()).double()
    on_modes, on_random = images_[:, : len(values)], images_[:, len(values) :]
    scale = values[0]
    return {
        "eigenvalues, largest relative difference": float(((vectors * on_modes).sum(0) / values - 1).abs().max()),
        "largest residual": float(((on_modes - vectors * values).norm(dim=0) / scale).max()),
        "operators on random directions": float(((on_random - _stored(options) @ random).norm(dim=0) / scale).max()),
    }


STAGES: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {"write": write, "modes": modes, "check": check}


def _stored(options: argparse.Namespace) -> StoredKernel:
    found = open_kernel(options.out)
    assert isinstance(found, StoredKernel)
    return found


def _side(options: argparse.Namespace, name: str) -> Path:
    return options.out.with_name(f"{options.out.name}.{name}")


def ended(stage: str, options: argparse.Namespace, until: float | None = None) -> Ended:
    """Run a stage in a process of its own; `until` a share of the kernel is written, where it is killed."""
    result = _side(options, f"{stage}.json")
    result.unlink(missing_ok=True)
    words = [sys.executable, "-m", "benchmarks.past_memory", *sys.argv[1:], "--stage", stage]
    start, peak = time.monotonic(), 0
    child = subprocess.Popen(words)
    while child.poll() is None:
        time.sleep(0.5)
        peak = max(peak, _high_water(child.pid))
        if until is not None and _written(options) >= until:
            child.send_signal(signal.SIGKILL)
            child.wait()
            return Ended(time.monotonic() - start, peak / 2**30, {"written": _written(options)})
    if child.returncode != 0 or not result.exists():
        raise SystemExit(f"the stage {stage!r} ended with exit code {child.returncode}")
    return Ended(time.monotonic() - start, peak / 2**30, json.loads(result.read_text()))


def _written(options: argparse.Namespace) -> float:
    try:
        done, regions = _stored(options).progress()
    except BadInput:  # not begun
        return 0.0
    return done / regions


def _high_water(pid: int) -> int:
    """Bytes a process held at most so far."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--out", type=Path, required=True, help="where the kernel is written; it must not exist")
    parser.add_argument("--kill", type=float, default=None, help="kill the first run once this share is written")
    parser.add_argument("--modes", type=int, default=50)
    parser.add_argument("--data", type=Path, default=None, help="folder of datasets; the default is TANGENTLENS_DATA")
    parser.add_argument("--keep", action="store_true", help="leave the kernel where it is")
    parser.add_argument("--memory", type=float, default=None, help="GiB of data a process may hold (RLIMIT_DATA)")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        if options.memory is not None:
            most = int(options.memory * 2**30)
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        _side(options, f"{options.stage}.json").write_text(json.dumps(STAGES[options.stage](options)))
        return
    if options.out.exists():
        raise SystemExit(f"{options.out} exists; choose another --out")
    cap = "" if options.memory is None else f", at most {options.memory:g} GiB a process"
    cores = len(os.sched_getaffinity(0))
    what = f"MLP {'-'.join(map(str, WIDTHS))}, {options.examples:,} images, float32, {cores} cores{cap}"
    print(f"{what}; {described()}", flush=True)
    if options.kill is not None:
        _say("write, then killed", ended("write", options, options.kill))
    for stage in STAGES:
        _say("write, resumed" if stage == "write" and options.kill is not None else stage, ended(stage, options))
    if not options.keep:
        shutil.rmtree(options.out)
        for file in options.out.parent.glob(f"{options.out.name}.*"):
            file.unlink()


def _say(what: str, run: Ended) -> None:
    found = ", ".join(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                      for name, value in run.found.items())  # fmt: skip
    print(f"{what:<20} {run.seconds:7.1f} s  peak {run.peak:5.2f} GiB  {found}", flush=True)


if __name__ == "__main__":
    main()
