"""A run on disk: an Icechunk repository in which every recorded step is one commit."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.buffer.cpu import Buffer

from tangentlens.errors import BadInput
from tangentlens.record.arrays import array_at, dims_of, values_of
from tangentlens.record.column import Column, widened
from tangentlens.record.labels import Labels
from tangentlens.record.measure import Row
from tangentlens.record.reason import reason

BRANCH = "main"
INITIAL = "_initial"
CHUNK = 2**24
"""Bytes of the initial parameters in one chunk: a chunk is padded to its size and compressed whole."""
# it warns of concurrent writers on a local disk; a second writer of a run is refused here
icechunk.set_logs_filter("error")


def storage_at(run: str | Path) -> icechunk.Storage:
    """A folder, or s3://bucket/prefix with credentials from the environment."""
    if str(run).startswith("s3://"):
        bucket, _, prefix = str(run).removeprefix("s3://").partition("/")
        return icechunk.s3_storage(bucket=bucket, prefix=prefix, from_env=True)
    return icechunk.local_filesystem_storage(str(run))


def repository_at(run: str | Path) -> icechunk.Repository:
    """The repository of a run; an error that says what is there instead."""
    if not exists(run):
        raise BadInput(f"there is no recorded run at {run}; give the folder a Recorder wrote")
    return icechunk.Repository.open(storage_at(run))


def exists(run: str | Path) -> bool:
    local = not str(run).startswith("s3://")
    if local and not Path(run).exists():
        return False
    if local and not Path(run).is_dir():
        raise BadInput(f"expected the folder of a run at {run}, got a file; give the folder a Recorder wrote")
    try:
        found = icechunk.Repository.exists(storage_at(run))
    except icechunk.IcechunkError as error:
        raise BadInput(
            f"a run is a place that may be read, got {run} ({reason(error)}); mend its permissions, or name another"
        ) from error
    if found:
        return True
    if local and any(Path(run).iterdir()):
        raise BadInput(f"expected a run or nothing at {run}, got a folder of other files; choose another folder")
    return False


def _make_folder(run: Path) -> None:
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"a run is written into a folder, got {run}, which cannot be made ({error.strerror or error}); "
            "choose another place"
        ) from error


def _created(run: str | Path) -> icechunk.Repository:
    try:
        return icechunk.Repository.create(storage_at(run))
    except icechunk.IcechunkError as error:
        raise BadInput(
            f"a run is made in a place that may be written to, got {run} ({reason(error)}); choose another place"
        ) from error


def refuse_damaged(repository: icechunk.Repository, run: str | Path) -> None:
    """To a reader a commit whose file is gone looks like a run that has not begun."""
    try:
        next(repository.ancestry(branch=BRANCH))
    except icechunk.IcechunkError as error:
        raise BadInput(
            f"expected a run whose files are whole, got {run} ({reason(error)}); copy it again from where it was made"
        ) from error


@dataclass(frozen=True)
class Entry:
    """One recorded step: its variables, attributes of the run and of groups that go with it, and what failed."""

    step: int
    rows: Mapping[str, Row]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, dict] = field(default_factory=dict)
    failures: Sequence[dict[str, Any]] = ()


class RunStore:
    """The writing end of a run. One process writes; any number read."""

    def __init__(self, run: str | Path) -> None:
        self.run = str(run)
        if exists(run):
            self.repository = icechunk.Repository.open(storage_at(run))
        else:
            if "://" not in self.run:
                _make_folder(Path(run))
            self.repository = _created(run)
        self._loop = asyncio.new_event_loop()
        self.refused: deque[dict[str, Any]] = deque()
        """Variables left out of the record because they contradict it; also among the failures."""
        self.load()

    def load(self) -> None:
        """Take everything from the last commit: also how a failed append is undone."""
        session = self.repository.readonly_session(BRANCH)
        self._tip = session.snapshot_id
        self.columns: dict[str, Column] = {}
        self.labels: dict[str, Labels] = {}
        self.attrs: dict[str, Any] = {}
        self.steps: list[int] = []
        self.failures: list[dict[str, Any]] = []
        try:
            root = zarr.open_group(session.store, mode="r")
        except FileNotFoundError:
            refuse_damaged(self.repository, self.run)
            return  # killed between making the repository and its first commit, or made just now
        self.attrs = dict(root.attrs)
        for path, item in root.members(max_depth=None):
            if path.startswith(INITIAL):
                continue
            if isinstance(item, zarr.Group):
                self.labels[path] = Labels.of(item)
            elif dims_of(item)[:1] == ("step",):
                self.columns[path] = Column.on_disk(path, item)
        steps = next((path for path in self.columns if path.endswith("/step")), None)
        self.steps = [int(step) for step in values_of(array_at(root, steps))] if steps is not None else []
        if "errors" in self.labels:
            self.failures = json.loads(self.labels["errors"].attrs.get("log", "[]"))

    @property
    def begun(self) -> bool:
        return "schema" in self.attrs

    def begin(self, attrs: Mapping[str, Any], initial: tuple[np.ndarray, str] | None) -> None:
        """The first commit: root attributes, and the network before training when measures will need it."""
        session = self.repository.writable_session(BRANCH)
        root = zarr.create_group(session.store, attributes=dict(attrs), overwrite=True)
        if initial is not None:
            values, contents = initial
            array = root.create_array(
                f"{INITIAL}/state",
                shape=values.shape,
                dtype=values.dtype,
                chunks=(min(max(1, values.size), CHUNK),),
                attributes={"contents": contents},
            )
            array[:] = values
        session.commit("begin")
        self.load()

    def initial(self) -> tuple[np.ndarray, str] | None:
        """What `begin` was given."""
        root = zarr.open_group(self.repository.readonly_session(BRANCH).store, mode="r")
        if f"{INITIAL}/state" not in root:
            return None
        array = array_at(root, f"{INITIAL}/state")
        return values_of(array), str(array.attrs["contents"])

    def last_scalars(self) -> dict[str, float]:
        """The training loop's numbers at the last recorded step."""
        if not self.steps:
            return {}
        root = zarr.open_group(self.repository.readonly_session(BRANCH).store, mode="r")
        inside = [path for path, column in self.columns.items() if path.startswith("training/") and not column.rest]
        last = {path.removeprefix("training/"): values_of(array_at(root, path))[-1] for path in inside}
        return {name: float(value) for name, value in last.items() if name != "step"}

    def seconds(self) -> tuple[float, float]:
        """What the run has taken so far: training, and recording it."""
        root = zarr.open_group(self.repository.readonly_session(BRANCH).store, mode="r")
        training, *recording = (
            float(np.nansum(values_of(array_at(root, path)))) if path in self.columns else 0.0
            for path in ("overhead/training", "overhead/measuring", "overhead/writing")
        )
        return training, sum(recording)

    def append(self, *entries: Entry) -> None:
        """More steps, in one commit: all of it is seen or none.

        A variable that contradicts the record costs itself only: it is left out and noted among the failures.
        """
        order = [*self.steps[-1:], *(entry.step for entry in entries)]
        for before, step in pairwise(order):
            if step <= before:
                raise ValueError(f"steps must increase, got {step} after {before} in {self.run}")
        try:
            session = self._session()
            entries = self._accepted(entries)
            earlier = self._make_room(session, entries)
            heads, chunks = self._pieces(entries)
            # chunks are only accepted inside the shape that the metadata gives
            self._write(session, heads)
            self._write(session, {**earlier, **chunks})
            steps = [entry.step for entry in entries]
            self._commit(session, f"step {', '.join(map(str, steps))}", steps=steps)
        except BaseException:
            self.load()
            raise
        self.steps += steps

    def _accepted(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """The entries without what contradicts the record or a step before; labels are learned on the way."""
        kinds = {path: column.dims[1:] for path, column in self.columns.items()}
        accepted = []
        for entry in entries:
            rows: dict[str, Row] = {}
            self.failures += entry.failures
            for path, row in entry.rows.items():
                try:
                    self._learn(path, row, kinds)
                    rows[path] = row
                except ValueError as error:
                    failure = {"step": entry.step, "measure": path, "type": type(error).__name__, "message": str(error)}
                    self.failures.append(failure)
                    self.refused.append(failure)
            accepted.append(replace(entry, rows=rows))
        return tuple(accepted)

    def _learn(self, path: str, row: Row, kinds: dict[str, tuple[str, ...]]) -> None:
        """Take up the labels of a variable that fits the others, whose dimensions are `kinds`."""
        group, _, name = path.rpartition("/")
        labels = self.labels.get(group, Labels({}, {}, {}))
        if name == "step" or name in {*labels.sizes, *labels.index, *labels.fixed}:
            raise ValueError(f"{path} is the name of a coordinate of {group}; give the variable another name")
        taken = [other for other in (*row.dims, *row.labels) if f"{group}/{other}" in kinds]
        if taken:
            raise ValueError(f"{path} lies along {taken[0]}, the name of a variable of {group}; rename that variable")
        inside = any(other == path or other.startswith(f"{path}/") for other in self.labels)
        if inside or any(parent in kinds for parent in _parents(group)):
            raise ValueError(f"{path} would be a variable and a group at once; rename one of them")
        if kinds.get(path, row.dims) != row.dims:
            raise ValueError(f"{path} was recorded with {kinds[path]}, got {row.dims}; rename one of them")
        labels.learn(row)
        self.labels[group], kinds[path] = labels, row.dims

    def _pieces(self, entries: Sequence[Entry]) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """What has to be written, by key: where steps share a chunk its last state holds them all."""
        heads: dict[str, bytes] = {}
        chunks: dict[str, bytes] = {}
        for index, entry in enumerate(entries, start=len(self.steps)):
            self.attrs.update(entry.attrs)
            for group, extra in entry.groups.items():
                heads |= self._group_head(group, extra)
            values = {path: self.labels[_group_of(path)].placed(row) for path, row in entry.rows.items()}
            for path, column in self.columns.items():
                head, chunk = column.put(index, np.asarray(entry.step) if path.endswith("/step") else values.get(path))
                heads |= head
                chunks |= chunk
        if self.failures:
            heads |= self._group_head("errors", {"log": json.dumps(self.failures)})
        return {"zarr.json": _group_json(self.attrs), **heads}, chunks

    def set_attributes(self, attrs: Mapping[str, Any], groups: Mapping[str, dict] | None = None) -> None:
        """A commit that adds no step: the end of the run, or an error after its last step."""
        session = self._session()
        self.attrs.update(attrs)
        heads = {"zarr.json": _group_json(self.attrs)}
        for path, extra in (groups or {}).items():
            heads |= self._group_head(path, extra)
        self._write(session, heads)
        self._commit(session, "attributes")

    def _session(self) -> icechunk.Session:
        session = self.repository.writable_session(BRANCH)
        if session.snapshot_id != self._tip:
            raise BadInput(f"another process has written to {self.run} since it was opened here; give each its own run")
        return session

    def _commit(self, session: icechunk.Session, message: str, **metadata: Any) -> None:
        try:
            self._tip = session.commit(message, metadata=metadata)
        except icechunk.ConflictError as error:
            raise BadInput(f"another process is writing to {self.run}; give each its own run") from error

    def _make_room(self, session: icechunk.Session, entries: Sequence[Entry]) -> dict[str, bytes]:
        """Groups, labels and variables for what is new or has become longer; the chunks of rows that had to move."""
        rows = [(path, row) for entry in entries for path, row in entry.rows.items()]
        new = {f"{_group_of(path)}/step" for path, _ in rows} - set(self.columns)
        self._write(session, {key: head for path in new for key, head in self._with_parents(_group_of(path)).items()})
        root = zarr.open_group(session.store, mode="r+")
        chunks: dict[str, bytes] = {}
        for path, column in self.columns.items():
            rest = self.labels[_group_of(path)].shape(column.dims[1:])
            if not column.fits(rest):
                self.columns[path], old = widened(root, column, rest)
                chunks |= old
        for path in sorted(new):
            self.columns[path] = Column.new(path, (), (), np.dtype(np.int64))
            for index, step in enumerate(self.steps):
                chunks |= self.columns[path].put(index, np.asarray(step))[1]
        for path, row in rows:
            rest = self.labels[_group_of(path)].shape(row.dims)
            self.columns.setdefault(path, Column.new(path, row.dims, rest, row.values.dtype, row.attrs))
        for group, labels in self.labels.items():
            if labels.unsaved:
                labels.save(root, group)
                self._write(session, self._group_head(group, {}))
        return chunks

    def _with_parents(self, group: str) -> dict[str, bytes]:
        """A group and the groups it lies in."""
        return {key: head for path in _parents(group) for key, head in self._group_head(path, {}).items()}

    def _group_head(self, path: str, extra: dict) -> dict[str, bytes]:
        labels = self.labels.setdefault(path, Labels({}, {}, {}))
        labels.attrs.update(extra)
        return {f"{path}/zarr.json": _group_json(labels.attrs)}

    def _write(self, session: icechunk.Session, pieces: Mapping[str, bytes]) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(session.store.set(key, Buffer.from_bytes(data)) for key, data in pieces.items()))

        self._loop.run_until_complete(all_of_them())

    def close(self) -> None:
        self._loop.close()


def _group_json(attrs: Mapping[str, Any]) -> bytes:
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attrs}).encode()


def _parents(group: str) -> list[str]:
    """A group's path and those of the groups it lies in, the outermost first."""
    parts = group.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _group_of(path: str) -> str:
    return path.rpartition("/")[0]
