"""The first rank's hold on a run: opened or gone on with, written to in the background, and closed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tangentlens.errors import BadInput
from tangentlens.record.measure import Row
from tangentlens.record.provenance import now, refuse_another
from tangentlens.record.reckoning import Reckoning, scalar_rows
from tangentlens.record.store import Entry, RunStore
from tangentlens.record.writer import Writer

Mirror = Callable[[int, Mapping[str, float]], None]


class Logbook:
    """Where recorded steps go. A record that cannot be written ends with a warning, or, if `strict`, with an error."""

    def __init__(self, run: str, *, strict: bool, mirrors: Iterable[Mirror]) -> None:
        self.store = RunStore(run)
        self.run, self._strict, self._mirrors = run, strict, list(mirrors)
        self.broken = False
        log = self.store.labels["errors"].attrs["log"] if "errors" in self.store.labels else "[]"
        self._failures: list[dict[str, Any]] = json.loads(log)
        self._writer = Writer(self.store.append)

    def check(self, mine: Mapping[str, Any], resume: bool | None) -> None:
        """Refuse to go on with a run of another model or probe, or with one that is complete unless told to."""
        store = self.store
        refuse_another(store.attrs, mine, self.run)
        state = store.attrs.get("state")
        if resume is False or (resume is None and state == "finished"):
            raise BadInput(
                f"expected a new run at {self.run}, got one that is {state} with {len(store.steps)} steps up to "
                f"{store.steps[-1] if store.steps else 'none'}; choose another folder, or go on with it by resume=True"
            )

    def enter(
        self, step: int, values: Mapping[str, float], reckoning: Reckoning, overhead: Mapping[str, Row], share: float
    ) -> None:
        """Hand over one step to be committed, and show it to the mirrors."""
        self._note(reckoning.failures)
        rows = {**reckoning.rows, **scalar_rows(values), **overhead}
        attrs = {"updated": now(), "last_step": step, "overhead": share, "state": "recording"}
        groups = {path: dict(notes) for path, notes in reckoning.notes.items()}
        attrs |= groups.pop("", {})
        if self._failures:
            groups["errors"] = {"log": json.dumps(self._failures)}
        self._guarded("be written", lambda: self._writer.submit(Entry(step, rows, attrs, groups)))
        plain = {name: float(np.asarray(row.values)) for name, row in rows.items() if row.values.ndim == 0}
        for mirror in tuple(self._mirrors):
            try:
                mirror(step, plain)
            except Exception as error:
                if self._strict:
                    raise
                self._mirrors.remove(mirror)
                warnings.warn(f"a mirror failed at step {step} and is left out from now on: {error}", stacklevel=5)

    def _note(self, failures: Iterable[dict[str, Any]]) -> None:
        """Keep every failure, and warn of the first of each measure."""
        for failure in failures:
            if failure["measure"] not in {earlier["measure"] for earlier in self._failures}:
                warnings.warn(
                    f"measure {failure['measure']} failed at step {failure['step']} and training goes on: "
                    f"{failure['type']}: {failure['message']}",
                    stacklevel=6,
                )
            self._failures.append(failure)

    def flush(self) -> None:
        self._guarded("be written", self._writer.flush)

    def close(self, attrs: Mapping[str, Any]) -> None:
        """Commit what is waiting, then how the run ended."""
        self._guarded("be written", self._writer.close)
        if not self.broken:
            self._guarded("be finished", lambda: self.store.set_attributes({"updated": now(), **attrs}))
        self.store.close()

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
                f"{type(error).__name__}: {error}",
                stacklevel=6,
            )
