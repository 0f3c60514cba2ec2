"""What the peers that speak torch share: the rate of its matrix products, and a count of operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.flops import counted_flops, matmul_rate
from benchmarks.peers.harness import Method, main


def run(methods: dict[str, Method]) -> None:
    import sys

    import torch

    torch.set_num_threads(int(sys.argv[sys.argv.index("--threads") + 1]) if "--threads" in sys.argv else 2)
    main(methods, matmul_rate, counted)


def counted(call: Callable[[], Any]) -> int:
    with counted_flops() as counter:
        call()
    return int(counter.get_total_flops())
