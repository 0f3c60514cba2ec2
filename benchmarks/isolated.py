"""Run a call in a forked child (Linux): its peak of memory is its own, and what it leaves behind goes with it."""

from __future__ import annotations

import ctypes
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")


def isolated(call: Callable[[], Result]) -> Result:
    """The result of the call, or its error. The parent must not have started threads of its own: it only forks."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_send, args=(there, call))
    child.start()
    there.close()
    try:
        kind, value = here.recv()
    except EOFError:
        child.join()
        return _raise(f"the child ended with exit code {child.exitcode} (-9: out of memory)")
    child.join()
    return value if kind == "result" else _raise(value)


def _send(there: Connection, call: Callable[[], Any]) -> None:
    try:
        there.send(("result", call()))
    except BaseException:  # the parent must hear of every end, or it waits for ever
        there.send(("error", traceback.format_exc(limit=3)))


def _raise(message: str) -> Any:
    raise RuntimeError(message)


@dataclass
class Peak:
    bytes: int = 0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Bytes held at most inside the block, above what the process held before it."""
    ctypes.CDLL(None).malloc_trim(0)  # give back what the warm-up freed, or it would hide the peak
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before, peak = _held("VmRSS"), Peak()
    yield peak
    peak.bytes = _held("VmHWM") - before


def _held(what: str) -> int:
    return _kilobytes("/proc/self/status", what) * 1024


def available_memory() -> int:
    return _kilobytes("/proc/meminfo", "MemAvailable") * 1024


def _kilobytes(file: str, what: str) -> int:
    return next(int(line.split()[1]) for line in Path(file).read_text().splitlines() if line.startswith(what))
