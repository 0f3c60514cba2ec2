"""Where the run's time goes: training, measuring, and waiting for the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter


@dataclass
class Clock:
    """Seconds since recording began, those of earlier processes included: the training loop's and the recorder's."""

    began: float = field(default_factory=perf_counter)
    spent: float = 0.0
    """Seconds in which the training loop waited for the recorder, in all."""
    last: float = field(default_factory=perf_counter)
    """When the training loop got control back from the last recorded step."""
    writing: float = 0.0
    earlier: float = 0.0
    """Seconds of the processes that recorded the run before this one."""

    @property
    def elapsed(self) -> float:
        return self.earlier + perf_counter() - self.began

    @property
    def share(self) -> float:
        """The recorder's share of the run time so far."""
        return self.spent / max(self.elapsed, 1e-9)

    @property
    def trained(self) -> float:
        """Seconds of the run so far that were the training loop's own."""
        return self.elapsed - self.spent

    def training(self, now: float) -> float:
        """Seconds the loop has trained since the last recorded step."""
        return now - self.last

    def opened(self, trained: float, spent: float) -> None:
        """The run is begun, so far nothing but recording took place; or gone on with, after these seconds."""
        self.last = perf_counter()
        self.earlier = trained + spent
        self.spent = spent + self.last - self.began

    def book(self, start: float, measured: float) -> None:
        """A recorded step is over: what it took, and what handing it to the disk took."""
        now = perf_counter()
        self.spent += now - start
        self.writing = now - measured
        self.last = now
