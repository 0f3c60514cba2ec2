"""Commits in the background: the training loop hands a step over and goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition
from time import perf_counter

from tangentlens.record.store import Entry

DUTY = 0.1
"""Share of the time that committing may take. Steps that come faster than that wait and share a commit."""
QUEUED = 64
"""Steps that may wait to be written before the training loop waits too."""


class Writer:
    """One thread that commits what it is handed, in order. What it has not done when the process dies was never there.

    A commit takes some tens of milliseconds of work that does not depend on how much is in it, so each is followed by
    a pause in proportion. A step that comes after the pause has a commit of its own.
    """

    def __init__(self, append: Callable[..., None], duty: float = DUTY) -> None:
        # a pool, because the interpreter waits for its work at exit even if nobody closed the recorder
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tangentlens-record")
        self._append, self._duty = append, duty
        self._waiting: list[Entry] = []
        self._changed = Condition()
        self._work: Future[None] | None = None
        self._running = self._hurry = False
        self._pause_until = 0.0

    def submit(self, entry: Entry) -> None:
        """Queue a step; an error of an earlier commit is raised here."""
        if self._work is not None and self._work.done():
            self._work.result()
        if len(self._waiting) >= QUEUED:
            self.flush()
        with self._changed:
            self._waiting.append(entry)
            if not self._running:
                self._running = True
                self._work = self._pool.submit(self._commit_all)

    def _commit_all(self) -> None:
        try:
            while self._commit_once():
                pass
        except BaseException:
            self._running = False
            raise

    def _commit_once(self) -> bool:
        """Commit what is waiting, after the pause; whether there is more."""
        with self._changed:
            while not self._hurry and (left := self._pause_until - perf_counter()) > 0:
                self._changed.wait(left)
            entries, self._waiting = self._waiting, []
        start = perf_counter()
        self._append(*entries)
        end = perf_counter()
        self._pause_until = end + (end - start) * (1 / self._duty - 1)
        with self._changed:
            # decided under the lock: a step handed over now either is seen here or starts new work
            self._running = bool(self._waiting)
            return self._running

    def flush(self) -> None:
        """Wait until everything handed over is committed."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
        try:
            if self._work is not None:
                self._work.result()
        finally:
            self._hurry = False

    def run(self, act: Callable[[], None]) -> None:
        """On the writing thread: writing needs an event loop, and the caller's thread may be inside one of its own."""
        self._pool.submit(act).result()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self.stop()

    def stop(self) -> None:
        """End the thread, whatever came of its work."""
        self._pool.shutdown(wait=True)
