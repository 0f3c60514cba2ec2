"""Where the run's time goes: training, measuring, and waiting for the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter


@dataclass
class Clock:
    """Seconds since recording began, shared out between the training loop and the recorder."""

    began: float = field(default_factory=perf_counter)
    spent: float = 0.0
    """Seconds in which the training loop waited for the recorder, in all."""
    last: float = field(default_factory=perf_counter)
    """When the training loop got control back from the last recorded step."""
    writing: float = 0.0

    @property
    def share(self) -> float:
        """The recorder's share of the run time so far."""
        return self.spent / max(perf_counter() - self.began, 1e-9)

    def training(self, now: float) -> float:
        """Seconds the loop has trained since the last recorded step."""
        return now - self.last

    def opened(self) -> None:
        """The run is begun: so far nothing but recording took place."""
        self.last = perf_counter()
        self.spent = self.last - self.began

    def book(self, start: float, measured: float) -> None:
        """A recorded step is over: what it took, and what handing it to the disk took."""
        now = perf_counter()
        self.spent += now - start
        self.writing = now - measured
        self.last = now
