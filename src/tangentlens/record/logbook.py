"""The first rank's hold on a run: opened or gone on with, written to in the background, and closed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tangentlens.errors import BadInput
from tangentlens.record.measure import Row
from tangentlens.record.provenance import now, refuse_another, refuse_other_settings
from tangentlens.record.reason import reason
from tangentlens.record.reckoning import Reckoning, not_finite, scalar_rows
from tangentlens.record.store import Entry, RunStore
from tangentlens.record.writer import Writer

Mirror = Callable[[int, Mapping[str, float]], None]


class Logbook:
    """Where recorded steps go. A record that cannot be written ends with a warning, or, if `strict`, with an error."""

    def __init__(self, run: str, *, strict: bool, mirrors: Iterable[Mirror]) -> None:
        self.store = RunStore(run)
        self.run, self._strict, self._mirrors = run, strict, list(mirrors)
        self.broken = False
        self._failed = {str(failure["measure"]) for failure in self.store.failures}
        self._writer = Writer(self.store.append)
        self._news: dict[str, Any] = {}

    def check(self, mine: Mapping[str, Any], asked: Mapping[str, Any], resume: bool | None) -> None:
        """Refuse to go on with a run of another model, probe, seed or settings, or with a complete one unless told to.

        Told to by `resume=True`, settings may change: a run may go on for longer than it was meant to.
        """
        store = self.store
        refuse_another(store.attrs, mine, self.run)
        refuse_other_settings(store.attrs, asked, self.run, told=resume is True)
        state = store.attrs.get("state")
        if resume is False or (resume is None and state == "finished"):
            raise BadInput(
                f"expected a new run at {self.run}, got one that is {state} with {len(store.steps)} steps up to "
                f"{store.steps[-1] if store.steps else 'none'}; choose another folder, or go on with it by resume=True"
            )

    def go_on(self, attrs: Mapping[str, Any]) -> None:
        """Attributes of the run that the next commit brings along; measures are added to those there were."""
        self._news |= attrs
        if "measures" in attrs:
            before, here = (json.loads(source.get("measures", "[]")) for source in (self.store.attrs, attrs))
            self._news["measures"] = json.dumps(list(dict.fromkeys([*before, *here])))

    def enter(
        self, step: int, values: Mapping[str, float], reckoning: Reckoning, overhead: Mapping[str, Row], share: float
    ) -> None:
        """Hand over one step to be committed, and show it to the mirrors."""
        self._warn_of(reckoning.failures)
        rows = {**reckoning.rows, **scalar_rows(values), **overhead}
        attrs = {"updated": now(), "last_step": step, "overhead": share, "state": "recording"}
        attrs |= {"not_finite": json.dumps(not_finite(rows)), **self._news}
        self._news = {}
        groups = {path: dict(notes) for path, notes in reckoning.notes.items()}
        attrs |= groups.pop("", {})
        entry = Entry(step, rows, attrs, groups, reckoning.failures)
        self._guarded("be written", lambda: self._writer.submit(entry))
        self._look_at_refused()
        plain = {name: float(np.asarray(row.values)) for name, row in rows.items() if row.values.ndim == 0}
        for mirror in tuple(self._mirrors):
            try:
                mirror(step, plain)
            except Exception as error:
                if self._strict:
                    raise
                self._mirrors.remove(mirror)
                warnings.warn(f"a mirror failed at step {step} and is left out from now on: {error}", stacklevel=5)

    def _warn_of(self, failures: Iterable[dict[str, Any]]) -> None:
        """Warn of the first failure of each measure; the record has them all."""
        for failure in failures:
            if failure["measure"] not in self._failed:
                warnings.warn(
                    f"measure {failure['measure']} failed at step {failure['step']} and training goes on: "
                    f"{failure['type']}: {failure['message']}",
                    stacklevel=6,
                )
            self._failed.add(failure["measure"])

    def _look_at_refused(self) -> None:
        """Say which variables the store has left out since somebody looked; an error if `strict`."""
        refused = [self.store.refused.popleft() for _ in range(len(self.store.refused))]
        if refused and self._strict:
            raise ValueError(refused[0]["message"])
        self._warn_of(refused)

    def flush(self) -> None:
        self._guarded("be written", self._writer.flush)
        self._look_at_refused()

    def close(self, attrs: Mapping[str, Any]) -> None:
        """Commit what is waiting, then how the run ended."""
        try:
            self.flush()
            end = {"updated": now(), **attrs}
            self._guarded("be finished", lambda: self._writer.run(lambda: self.store.set_attributes(end)))
        finally:
            self._writer.run(self.store.close)
            self._writer.stop()

    def _guarded(self, what: str, act: Callable[[], None]) -> None:
        if self.broken:
            return
        try:
            act()
        except Exception as error:
            if self._strict:
                raise
            self.broken = True
            warnings.warn(
                f"the record at {self.run} cannot {what} and ends here, training goes on: "
                f"{type(error).__name__}: {reason(error)}",
                stacklevel=6,
            )
