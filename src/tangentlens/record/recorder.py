"""The one stateful shell: shown a training loop's steps, it measures those that are due and writes them down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

from torch import nn

from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Probe, probe as checked_probe
from tangentlens.capture.undisturbed import eager
from tangentlens.errors import DifferentRun
from tangentlens.record.asked import (
    check_classes,
    check_measures,
    check_model,
    check_plan,
    check_single,
    check_targets,
    inputs_and_targets,
    names_of_training,
    numbers,
    whole,
)
from tangentlens.record.budget import Budget
from tangentlens.record.clock import Clock
from tangentlens.record.initial import packed, state_of, unpacked
from tangentlens.record.logbook import Logbook, Mirror
from tangentlens.record.measure import Measure
from tangentlens.record.provenance import model_attributes, probe_attributes, surroundings
from tangentlens.record.quiet import observed
from tangentlens.record.ranks import Asked, Ranks
from tangentlens.record.reckoning import Reckoning, measured, overhead_rows
from tangentlens.record.schedule import Moment, Schedule, log_spaced
from tangentlens.record.sharded import is_sharded, put_together
from tangentlens.record.snapshot import Beginning, Snapshot, take_part

SHARE = 0.1
"""Part of the run time that default instruments may take; chosen measures have no bound unless given one."""


class Recorder:
    """Follow a training run: `observe(step, loss=...)` after each step, and what is due is measured and committed.

    `probe` is the inputs, or (inputs, targets); a model that takes a pair of inputs gets ((first, second), None).
    Without `measures` the instruments that apply are used, without `schedule` fifty log-spaced steps. The last step
    shown is recorded too. A measure that fails is noted in the record with its step and training goes on, unless
    `strict`. `budget` bounds the share of the run time: an instrument too expensive for a step is left out of it, never
    of the first and last. A run that was killed goes on where its record ends; a finished one, or one with other
    settings, only with `resume=True`.
    In a job of many processes the first one measures; with `ranks` all of them share the rows of its kernels and
    moments.
    Parameters, gradients, modes and random states stay as they are.
    """

    def __init__(
        self,
        run: str | Path,
        model: nn.Module,
        probe: Any,
        measures: Iterable[Measure] | None = None,
        schedule: Schedule | None = None,
        *,
        outputs: Outputs | None = None,
        budget: float | None = None,
        strict: bool = False,
        resume: bool | None = None,
        seed: int | None = None,
        title: str | None = None,
        settings: Mapping[str, Any] | None = None,
        mirrors: Iterable[Mirror] = (),
        unsharded: nn.Module | None = None,
        ranks: bool = False,
    ) -> None:
        check_model(model)
        check_plan(schedule, budget)
        self.run, self.strict = str(run), strict
        self.schedule = schedule if schedule is not None else log_spaced()
        self.ranks, self._shared = Ranks(), ranks
        self._outputs = outputs
        inputs, self.targets = inputs_and_targets(probe)
        self.probe: Probe = checked_probe(inputs)
        check_targets(self.targets, self.probe.length)
        self._live, self._unsharded = eager(model), unsharded
        self.model = self._present()
        if measures is None:
            from tangentlens.record.instruments import applicable

            measures = applicable(self.model, self.probe, self.targets, outputs)
            budget = SHARE if budget is None else budget
        self.measures = tuple(measures)
        check_measures(self.measures, self.targets)
        self._taken = names_of_training(self.measures)
        self.clock, self.budget = Clock(), Budget(budget)
        self._before: dict[str, float] = {}
        self._recorded: dict[str, float] = {}
        self._shown: int | None = None
        self._closed = False
        self._scalars: Mapping[str, Any] = {}
        self._beginning: Beginning | None = None
        self._began_at: int | None = None  # the first step of a run that is gone on with
        self._untrained = True
        self._logbook: Logbook | None = None
        asked = {"title": title or Path(self.run).name, "settings": json.dumps(dict(settings or {}), default=str)}
        self.steps: set[int] = set(self.ranks.from_first(lambda: self._open(asked, seed, resume, mirrors)))
        self.clock.opened(*(self._logbook.store.seconds() if self._logbook is not None else (0.0, 0.0)))

    def _present(self) -> nn.Module:
        """The module to measure: the training run's own, or the plain copy into which sharded weights are gathered."""
        if self.ranks.size > 1 and is_sharded(self._live):
            return put_together(self._live, self._unsharded, self.ranks.first)
        return self._live

    def _open(
        self, asked: dict[str, Any], seed: int | None, resume: bool | None, mirrors: Iterable[Mirror]
    ) -> list[int]:
        """Begin the run, or go on with it: the steps that are already in the record."""
        check_classes(self.measures, self.targets, self._output_count)
        mine = model_attributes(self.model) | probe_attributes(self.probe.inputs, self.targets)
        plan = {
            "measures": json.dumps([measure.name for measure in self.measures]),
            "schedule": str(self.schedule),
            "budget": "" if self.budget.share is None else self.budget.share,
            "planned_steps": json.dumps(list(self.schedule.planned)),
        }
        self._logbook = logbook = Logbook(self.run, strict=self.strict, mirrors=mirrors)
        store = logbook.store
        if store.begun:
            logbook.check(mine, asked | {"seed": seed}, resume)
            logbook.go_on(plan | {"settings": asked["settings"]})
            self._began_at = int(store.attrs.get("first_step", 0))
            kept = store.initial()
            state = unpacked(*kept, device=next(self.model.parameters()).device) if kept is not None else None
        else:
            keep = any("initial" in measure.needs for measure in self.measures)
            state = state_of(self.model) if keep else None
            root = surroundings(seed) | mine | plan | asked | {"state": "recording"}
            store.begin(root, packed(state) if state is not None else None)
        if state is not None:
            self._beginning = Beginning(state, self.model, self.probe, self.targets, self._outputs)
            self._untrained = self._began_at is None or self._beginning.is_still(self.model)
        self._recorded = self._before = store.last_scalars()
        return list(store.steps)

    def _output_count(self) -> int:
        with observed(self.model) as model:
            return Snapshot(0, model, self.probe.rows(0, 2), outputs=self._outputs).outputs.shape[1]

    def observe(self, step: int, **scalars: Any) -> bool:
        """Show the recorder one step of training, after its update; whether it was recorded."""
        if self._closed:
            raise ValueError(f"the recorder of {self.run} is closed; make a new one with resume=True to go on")
        step = whole(step)
        if self._shown is not None and step < self._shown:
            raise ValueError(f"steps must increase, got {step} after {self._shown}; count them over the whole run")
        check_single(scalars, self._taken)
        if self._shown is None:
            self.ranks.from_first(lambda: self._refuse_another_start(step))
        previous = self._shown if self._shown is not None else max(self.steps, default=-1)
        self._shown = step
        self._scalars = scalars
        # reading a scalar waits for the device, so it is done only when the schedule looks at values
        values = numbers(scalars) if self.schedule.needs_scalars else {}
        due = self.schedule.due(Moment(step, values, self._before, self._recorded, previous))
        if self.schedule.needs_scalars:
            self._before = values
            due = self.ranks.from_first(lambda: due)  # losses differ between ranks: the first one decides for all
        if not due or step in self.steps:
            return False
        self._record(step, scalars, last=previous < max(self.schedule.planned, default=-1) <= step)
        return True

    def _refuse_another_start(self, step: int) -> None:
        """A run that starts anew at its first step starts with the weights it kept, as they were handed over."""
        if self._began_at is not None and step <= self._began_at and not self._untrained:
            raise DifferentRun(
                f"{self.run} began with other weights: expected those it kept from before training at step {step}, got "
                "others; record into another folder, or go on from the checkpoint where its training stopped"
            )
        if self._began_at is None and self._logbook is not None:
            self._logbook.go_on({"first_step": step})

    def _record(self, step: int, scalars: Mapping[str, Any], *, last: bool = False) -> None:
        start = perf_counter()
        training = self.clock.training(start)
        self.ranks.same(step, "step")
        values = numbers(scalars)
        first = not self.steps
        moment = Moment(step, values, self._recorded, self._recorded, max(self.steps, default=-1))
        self.steps.add(step)
        self._recorded = values
        self.model = self._present()
        made: list[Reckoning] = []  # stays on the first rank
        self.ranks.led(lambda: made.append(self._measure(moment, first, first or last)), self._take_part)
        measured_at = perf_counter()
        for reckoning in made:
            overhead = overhead_rows(self.clock, training, measured_at - start, reckoning)
            assert self._logbook is not None
            self._logbook.enter(step, values, reckoning, overhead, self.clock.share)
        self.clock.book(start, measured_at)

    def _measure(self, moment: Moment, first: bool, forced: bool) -> Reckoning:
        reckoning = Reckoning()
        if self._logbook is None or self._logbook.broken:
            return reckoning
        try:
            with observed(self.model) as model:
                snapshot = self._snapshot(moment.step, model, moment.scalars, first)
                measured(self.measures, snapshot, reckoning, self.budget, moment, forced=forced, strict=self.strict)
        except Exception as error:
            if self.strict:
                raise
            reckoning.failed(moment.step, "", error)
        return reckoning

    def _take_part(self, asked: Asked) -> None:
        probe = self.probe if asked.chosen is None else self.probe.chosen(asked.chosen)
        with observed(self.model) as model:
            take_part(asked.reading, model, probe, self._outputs, self.ranks.members(model))

    def _snapshot(self, step: int, model: nn.Module, values: Mapping[str, float], first: bool) -> Snapshot:
        before = self._beginning
        # an untrained network is its own beginning: one reading serves both
        same = before() if before is not None and first and before.is_still(model) else None
        snapshot = Snapshot(step, same.model if same is not None else model, self.probe, self.targets,
                            outputs=self._outputs, scalars=values, beginning=before)  # fmt: skip
        if self._shared and self.ranks.size > 1 and self.model is self._live:  # sharded weights are on one rank alone
            snapshot.crew = lambda reading, chosen: self.ranks.ask(reading, chosen, model)
        return snapshot.shares_readings_of(same) if same is not None else snapshot

    @property
    def closed(self) -> bool:
        """Whether it takes no more steps."""
        return self._closed

    @property
    def taken(self) -> frozenset[str]:
        """Names that scalars given to `observe` cannot have, because the record uses them itself."""
        return self._taken

    @property
    def shown(self) -> int | None:
        """The last step shown, recorded or not."""
        return self._shown

    @property
    def overhead(self) -> float:
        """The share of the run time so far that the training loop spent waiting for the recorder."""
        return self.clock.share

    def flush(self) -> None:
        """Wait until every recorded step is committed: before saving a checkpoint from which training may go on."""
        self.ranks.from_first(lambda: self._logbook.flush() if self._logbook is not None else None)

    def close(self) -> None:
        """Record the last step shown, commit what is waiting and mark the run finished."""
        if self._closed:
            return
        if self._shown is not None and self._shown not in self.steps and self._shown > max(self.steps, default=-1):
            self._record(self._shown, self._scalars, last=True)
        self._end("finished")

    def abandon(self) -> None:
        """Training failed: commit what was measured and say so; nothing more is measured and no rank waits."""
        if not self._closed:
            self._end("failed")

    def _end(self, state: str) -> None:
        self._closed = True
        if self._logbook is None:
            return
        start = perf_counter()
        self._logbook.flush()
        self.clock.spent += perf_counter() - start
        last = {} if self._shown is None else {"last_step": max(self._shown, *self.steps, 0)}
        self._logbook.close({"state": state, "overhead": self.clock.share, **last})

    def report(self, out: str | Path | None = None) -> Path:
        """Close the run and write its page: one HTML file, by default inside the run's folder."""
        from importlib import import_module

        self.close()
        # by name, because the stages record and report do not know each other
        write_report = import_module("tangentlens.report").write_report
        inside = Path("report.html") if "://" in self.run else Path(self.run) / "report.html"
        return Path(write_report(self.run, out if out is not None else inside))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()
