"""Many processes, one record: the first rank measures and writes, and all ranks agree on what happened.

Where the ranks share the work of a measure, the first one asks the others to take part in a reading, and they do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch import nn

from tangentlens.distributed import Ranks as Members

Result = TypeVar("Result")
PATIENCE = timedelta(hours=6)
"""How long ranks wait for a measure of the first one; a rank that dies is noticed at once."""


@dataclass(frozen=True)
class Asked:
    """A reading in which every rank takes part, and the examples it is of (None: the whole probe)."""

    reading: str
    chosen: list[int] | None


class Ranks:
    """The processes of a training job, with a gloo group of their own: agreement must not queue behind gradients."""

    def __init__(self) -> None:
        joined = dist.is_available() and dist.is_initialized()
        self.size = dist.get_world_size() if joined else 1
        self.rank = dist.get_rank() if joined else 0
        self.group = dist.new_group(backend="gloo", timeout=PATIENCE) if self.size > 1 else None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def from_first(self, work: Callable[[], Result]) -> Result:
        """What the first rank's work returns, on every rank; if it fails there, it fails everywhere."""
        if self.size == 1:
            return work()
        message: list[Any] = [None, None]
        failure: BaseException | None = None
        if self.first:
            try:
                message = [work(), None]
            except Exception as error:
                failure, message = error, [None, f"{type(error).__name__}: {error}"]
        dist.broadcast_object_list(message, src=0, group=self.group)
        if failure is not None:
            raise failure
        if message[1] is not None:
            raise RuntimeError(f"recording failed on the first rank: {message[1]}")
        return message[0]

    def led(self, work: Callable[[], Result], serve: Callable[[Asked], Any]) -> Result:
        """`from_first`, while the others do what its work asks of them."""
        if self.size == 1 or self.first:
            return self.from_first(work)
        while True:
            message: list[Any] = [None, None]
            dist.broadcast_object_list(message, src=0, group=self.group)
            if not isinstance(message[0], Asked):
                break
            with suppress(Exception):  # the first rank has heard of it, and notes it beside the measure
                serve(message[0])
        if message[1] is not None:
            raise RuntimeError(f"recording failed on the first rank: {message[1]}")
        return message[0]

    def ask(self, reading: str, chosen: list[int] | None, model: nn.Module) -> Members:
        """Call the others to a reading of this model; what to pass as `ranks=` on the first rank."""
        dist.broadcast_object_list([Asked(reading, chosen), None], src=0, group=self.group)
        return self.members(model)

    def members(self, model: nn.Module) -> Members:
        """The group a reading of this model runs over: the job's own where its numbers lie on cards."""
        on_cards = any(parameter.is_cuda for parameter in model.parameters())
        return True if on_cards and dist.get_backend() == "nccl" else self.group

    def same(self, value: Any, words: str) -> None:
        """Stop every rank if they do not all show the same value."""
        if self.size == 1:
            return
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        if any(other != values[0] for other in values):
            raise RuntimeError(
                f"all ranks should show the same {words}, got {values}; call observe() alike on every rank"
            )
