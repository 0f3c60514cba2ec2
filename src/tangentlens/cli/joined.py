"""A command started by torchrun: its processes form one group for as long as it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta

PATIENCE = timedelta(hours=6)
"""How long one process may measure alone while the others wait for it."""


@contextmanager
def joined() -> Iterator[int]:
    """Join the processes that torchrun started and give this one's rank; only the first prints."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield 0
        return
    import torch
    from torch import distributed

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
    try:
        rank = distributed.get_rank()
        if rank == 0:
            yield rank
        else:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                yield rank
    finally:
        distributed.destroy_process_group()
