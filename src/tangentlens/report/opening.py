"""Where a report's runs come from: a folder on disk, a file, or labelled data already in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr
import zarr


@dataclass(frozen=True)
class Run:
    """A run to be shown: its name on the page and its labelled data; `version` changes whenever the record does."""

    name: str
    tree: xr.DataTree
    version: str = ""


def open_run(source: str | Path | xr.DataTree) -> Run:
    """A run from an Icechunk repository, a zarr folder or a netCDF file, lazily; a DataTree is taken as it is."""
    if isinstance(source, xr.DataTree):
        return Run(str(source.attrs.get("title") or source.name or "run"), source)
    if str(source).startswith("s3://"):
        tree, version = _open_icechunk(str(source))
        return Run(str(tree.attrs.get("title") or str(source).rstrip("/").rpartition("/")[2]), tree, version)
    path = Path(source)
    if not path.exists():
        raise ValueError(f"a report needs a recorded run, got {path}, which does not exist; give the folder of a run")
    if path.is_file():
        tree, version = _open_file(path), str(path.stat().st_mtime_ns)
    elif _is_zarr(path):
        tree, version = _open_groups(str(path)), ""
    else:
        tree, version = _open_icechunk(str(path))
    return Run(str(tree.attrs.get("title") or path.resolve().name), tree, version)


def _is_zarr(path: Path) -> bool:
    """Whether the groups lie in the folder as they are."""
    try:
        return (path / "zarr.json").exists()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"a report needs a run that may be read, got {path} ({reason}); mend its permissions"
        ) from error


def _open_file(path: Path) -> xr.DataTree:
    try:
        return xr.open_datatree(path)
    except (ValueError, OSError) as error:  # xarray's own message lists what it tried to read it with
        raise _no_run(path) from error


def _no_run(place: str | Path) -> ValueError:
    return ValueError(
        f"expected a recorded run (an Icechunk repository, a zarr folder or a netCDF file), got {place}, "
        "which is none of them; give the folder the recorder wrote"
    )


def _open_icechunk(place: str) -> tuple[xr.DataTree, str]:
    """The newest commit of a repository; a run that was made and has not begun yet is an empty tree."""
    import icechunk

    icechunk.set_logs_filter("error")  # it warns of writers on a local disk each time a reader opens one
    if place.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        storage = icechunk.s3_storage(bucket=bucket, prefix=prefix, from_env=True)
    else:
        storage = icechunk.local_filesystem_storage(place)
    try:
        repository = icechunk.Repository.open(storage)
        session = repository.readonly_session("main")
    except icechunk.IcechunkError as error:
        raise _no_run(place) from error
    try:
        next(repository.ancestry(branch="main"))  # a commit whose file is gone would be read as an empty run
    except icechunk.IcechunkError as error:
        raise ValueError(
            f"expected a run whose files are whole, got {place}, whose last commit is gone; "
            "copy it again from where it was made"
        ) from error
    return _open_groups(session.store), str(session.snapshot_id)


def _open_groups(store: Any) -> xr.DataTree:
    """All groups but the recorder's own, whose names begin with an underscore."""
    try:
        root = zarr.open_group(store, mode="r")
    except FileNotFoundError:
        return xr.DataTree()
    nodes = {"/": xr.Dataset(attrs=dict(root.attrs))}
    for path, item in sorted(root.members(max_depth=None)):
        if isinstance(item, zarr.Group) and not path.startswith("_"):
            nodes[f"/{path}"] = xr.open_zarr(store, group=path, consolidated=False, chunks=None)
    return xr.DataTree.from_dict(nodes)


def open_runs(sources: Sequence[str | Path | xr.DataTree] | str | Path | xr.DataTree) -> list[Run]:
    """Several runs under names that differ."""
    if isinstance(sources, str | Path | xr.DataTree):
        sources = [sources]
    if not sources:
        raise ValueError("a report needs at least one run, got none; give the folder of a run")
    runs: list[Run] = []
    for run in map(open_run, sources):
        taken = {other.name for other in runs}
        name, again = run.name, 2
        while name in taken:
            name, again = f"{run.name} ({again})", again + 1
        runs.append(Run(name, run.tree, run.version))
    return runs
