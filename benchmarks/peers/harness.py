"""What runs inside a peer's environment: one method on one workload, its time, peak memory and error as a JSON line.

Needs numpy alone; everything else is the peer's own. A method is a function of the shared file and the kernel wanted.
It returns a function from a number of examples to the kernel of the first so many, and a function from that kernel to
its leading part as an array (n, c, n, c) or (n, n).
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.versions import versions

PACKAGES = (
    "tangentlens", "torch", "numpy", "scipy", "jax", "neural-tangents", "vivit-for-pytorch", "backpack-for-pytorch",
    "nngeometry", "asdfghjkl", "torchjd",
)  # fmt: skip
Method = Callable[["Shared", str], tuple[Callable[[int], Any], Callable[[Any, int], Any]]]


@dataclass(frozen=True)
class Shared:
    """A workload's file: what it is, its weights by parameter name, inputs, and the exact kernel of the first few."""

    described: dict[str, Any]
    weights: dict[str, np.ndarray]
    inputs: np.ndarray
    reference: np.ndarray

    def torch(self) -> tuple[Any, Any]:
        """The network with its weights and the inputs, for peers that speak torch."""
        import torch

        from benchmarks import models

        model = getattr(models, self.described["builder"])(**self.described["sizes"]).eval()
        model.load_state_dict({name: torch.from_numpy(value) for name, value in self.weights.items()})
        return model, torch.from_numpy(self.inputs)


def shared(file: Path) -> Shared:
    held = np.load(file)
    weights = {name.removeprefix("weights/"): held[name] for name in held.files if name.startswith("weights/")}
    return Shared(json.loads(str(held["described"])), weights, held["inputs"], held["reference"])


def main(
    methods: dict[str, Method],
    rate: Callable[[], float],
    counted: Callable[[Callable[[], Any]], int] | None = None,
    compiled: bool = False,
) -> None:
    """Measure the method named on the command line; the last line printed is the JSON object.

    `rate` measures the matrix products of the peer's own library; `counted` counts the operations of a call;
    `compiled` methods are warmed up at full size, since compiling is not what is timed.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("kernel")
    parser.add_argument("method", choices=list(methods))
    for flag, value in (("--repeats", 3), ("--seconds", 60.0), ("--threads", 2), ("--memory", 0)):
        parser.add_argument(flag, type=type(value), default=value)
    asked = parser.parse_args()
    if asked.memory:  # heap and private mappings: beyond it the peer gets an error, not its neighbours
        resource.setrlimit(resource.RLIMIT_DATA, (asked.memory, asked.memory))
    try:
        print(json.dumps(measured(methods[asked.method], asked, rate, counted, compiled)), flush=True)
    except Exception as error:  # a peer that cannot is a row of the table
        said = (str(error).strip() or "no message").splitlines()[0]
        print(json.dumps({"failed": f"{type(error).__name__}: {said}"[:160]}), flush=True)


def measured(
    method: Method, asked: argparse.Namespace, rate: Callable[[], float], counted: Any, compiled: bool
) -> dict[str, Any]:
    held = shared(asked.file)
    compute, leading = method(held, asked.kernel)
    count = len(held.inputs)
    rates = [rate()]
    compute(count if compiled else 2)  # libraries load, and compilers compile, once
    seconds, found = [], None
    while len(seconds) < asked.repeats and sum(seconds) < asked.seconds:
        del found
        start = time.perf_counter()
        found = compute(count)
        seconds.append(time.perf_counter() - start)
    rates.append(rate())
    peak = high_water_mark()
    error = error_of(leading(found, len(held.reference)), held.reference)
    del found
    flops = 0
    if counted and min(seconds) < 30:
        with suppress(Exception):  # hooks of some peers do not run under a counter
            flops = counted(lambda: compute(count))
    told = {"date": date.today().isoformat(), "versions": versions(PACKAGES)}
    return {"seconds": seconds, "peak": peak, "error": error, "flops": flops, "rate": max(rates), **told}


def with_modes(method: Method) -> Method:
    """The 200 largest modes of a peer that has none of its own: its full kernel, then scipy's eigsh on it, or numpy's
    eigh. The error is the worst ||K v - lambda v|| / ||K||."""

    def prepared(held: Shared, kernel: str) -> tuple[Callable[[int], Any], Callable[[Any, int], Any]]:
        if kernel != "top200":
            return method(held, kernel)
        compute, leading = method(held, "full")

        def modes(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            matrix = np.ascontiguousarray(leading(compute(n), n))
            matrix = matrix.reshape(matrix.shape[0] * matrix.shape[1], -1)
            wanted = min(200, len(matrix) - 1)
            try:
                from scipy.sparse.linalg import eigsh

                values, vectors = eigsh(matrix, wanted)
            except ImportError:
                values, vectors = (found[..., -wanted:] for found in np.linalg.eigh(matrix))
            return matrix, values, vectors

        def residual(found: tuple[np.ndarray, np.ndarray, np.ndarray], few: int) -> float:
            matrix, values, vectors = found
            return float(np.linalg.norm(matrix @ vectors - vectors * values, axis=0).max() / np.abs(values).max())

        return modes, residual

    return prepared


def error_of(part: Any, reference: np.ndarray) -> float:
    """Relative Frobenius error on the first examples; a number is an error already."""
    if isinstance(part, float):
        return part
    found = np.asarray(part, dtype=np.float64)
    exact = reference if found.ndim == 4 else np.einsum("ncmc->nm", reference) / reference.shape[1]
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def high_water_mark() -> int:
    """Bytes this process held at most; not ru_maxrss, which remembers the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
