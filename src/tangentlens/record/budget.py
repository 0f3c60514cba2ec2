"""A bound on what recording may cost: instruments that would exceed it are left out of some steps."""

from __future__ import annotations

from time import perf_counter

ALWAYS = frozenset({"training"})
"""Groups that are never left out: a look at the probe and at the parameters, and what somebody reads first."""


class Budget:
    """Decides which instruments a step can afford, by what each cost before; the first and the last step have them all.

    `share` is the part of the run time that measuring may take, None for no bound; the last step comes on top. With a
    bound the steps at which an instrument is measured depend on the machine; what is measured does not.
    """

    def __init__(self, share: float | None) -> None:
        self.share = share
        self._began = perf_counter()
        self._cost: dict[str, float] = {}
        self._spent: dict[str, float] = {}

    def order(self, groups: list[str]) -> list[str]:
        """Those that have had the least time come first."""
        return sorted(groups, key=lambda group: self._spent.get(group, 0.0))

    def affords(self, group: str, forced: bool) -> bool:
        cost = self._cost.get(group, 0.0)
        if self.share is None or forced or group in ALWAYS:
            return True
        elapsed = perf_counter() - self._began
        return sum(self._spent.values()) + cost <= self.share * (elapsed + cost)

    def book(self, group: str, seconds: float) -> None:
        """The least it has cost is what it costs: a first time holds imports, another a busy machine."""
        self._cost[group] = min(seconds, self._cost.get(group, seconds))
        self._spent[group] = self._spent.get(group, 0.0) + seconds
