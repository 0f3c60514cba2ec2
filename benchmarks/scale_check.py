"""The formula of `scale_out` beside measured times: one process with all threads, two gloo processes with half each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.flops import matmul_rate
from benchmarks.isolated import available_memory
from benchmarks.scale_out import Machine, Prediction, Work, of_model, predicted

CASES = (
    ("MLP 784-1024-1024-10", "mlp", {"widths": [784, 1024, 1024, 10]}, 512, "full"),
    ("CNN 64-128-128", "cnn", {"channels": [64, 128, 128], "outputs": 10}, 64, "full"),
    ("CNN 64-128-128", "cnn", {"channels": [64, 128, 128], "outputs": 10}, 128, "mean"),
)
_LINK_BYTES = 64 << 20


def checked() -> str:
    """Two lines per case: one process, and two; the slower process counts."""
    threads = len(os.sched_getaffinity(0))
    lines = [f"{threads} cores; capture rate: that of one example's forward pass in a batch of 32"]
    for number, case in enumerate(CASES):
        work = of_model(*case)  # type: ignore[arg-type]
        for processes in (1, 2):
            found = _launched(number, processes, max(1, threads // processes))
            rates = found["product_rate"], found["capture_rate"], found["link"]
            machine = Machine(*rates, available_memory() / processes, device="cpu")
            lines.append(_line(work, case, predicted(work, machine, processes), found["seconds"]))
    return "\n".join(lines)


def _line(work: Work, case: Any, told: Prediction, seconds: float) -> str:
    return (
        f"{work.name}, N={work.examples}, {case[4]}, {told.devices} processes: predicted {told.seconds:.3g} s "
        f"(captures {told.capture:.2g}, products {told.products:.2g}, formed again {told.forming:.2g}, "
        f"ring {told.travel:.2g}, sum {told.summed:.2g}), "
        f"measured {seconds:.3g} s, measured / predicted {seconds / told.seconds:.2f}"
    )


def _launched(case: int, processes: int, threads: int) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--master-port=0"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", "benchmarks.scale_check", str(case)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"the job ended with exit code {ended.returncode}: {ended.stderr[-2000:]}")
    return dict(json.loads(ended.stdout.strip().splitlines()[-1]))


def _member(number: int) -> None:
    """One process of the job: measures its rates together with the others, then the kernel."""
    from benchmarks import models
    from tangentlens.kernels import entk, entk_full

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo")
    _, builder, sizes, examples, reduction = CASES[number]
    torch.manual_seed(0)
    model = getattr(models, builder)(**sizes).eval()
    inputs = torch.randn(examples, *((784,) if builder == "mlp" else (3, 32, 32)))
    kernel = entk_full if reduction == "full" else entk
    kernel(model, inputs[:4], ranks=True)
    rates = {"product_rate": matmul_rate(), "capture_rate": _forward_rate(model, inputs[:32]), "link": _link()}
    seconds = []
    for _ in range(3):
        dist.barrier()
        start = time.perf_counter()
        kernel(model, inputs, ranks=True)
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(json.dumps({**rates, "seconds": median(seconds)}), flush=True)
    dist.destroy_process_group()


def _forward_rate(model: Any, inputs: Any) -> float:
    from benchmarks.flops import counted_flops

    with torch.no_grad():
        with counted_flops() as counter:
            model(inputs)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            model(inputs)
            times.append(time.perf_counter() - start)
    return float(counter.get_total_flops() / min(times))


def _link() -> float:
    """Bytes per second from this process to the next while the same comes in, as around the ring."""
    if dist.get_world_size() == 1:
        return float("inf")
    outgoing, incoming = torch.zeros(_LINK_BYTES // 4), torch.empty(_LINK_BYTES // 4)
    rank, size = dist.get_rank(), dist.get_world_size()
    times = []
    for _ in range(3):
        dist.barrier()
        start = time.perf_counter()
        moves = [dist.P2POp(dist.isend, outgoing, (rank + 1) % size)]
        moves += [dist.P2POp(dist.irecv, incoming, (rank - 1) % size)]
        for work in dist.batch_isend_irecv(moves):
            work.wait()
        times.append(time.perf_counter() - start)
    return _LINK_BYTES / min(times)


if __name__ == "__main__":
    _member(int(sys.argv[1]))
