"""Where runs are read from, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

from tangentlens.report import write_report
from tangentlens.report.labelled import errors, first_step, reference, variable
from tangentlens.report.opening import open_run
from tests.report.records import record

FEW = np.array([0, 1, 2])


def as_recorded(data: xr.Dataset) -> xr.Dataset:
    """Names as the recorder stores them: text of any length."""
    text = {
        name: (c.dims, c.values.astype(np.dtypes.StringDType()))
        for name, c in data.coords.items()
        if c.dtype.kind == "U"
    }
    return data.assign_coords(text)


def repository(folder: Path, tree: xr.DataTree) -> Path:
    """A record as the recorder leaves it: an Icechunk repository of zarr groups, with a group of its own."""
    session = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder))).writable_session("main")
    root = zarr.create_group(session.store, attributes=dict(tree.attrs))
    root.create_array("_initial/state", shape=(4,), dtype="uint8")
    for node in tree.subtree:
        if node.path != "/":
            as_recorded(node.to_dataset(inherit=False)).to_zarr(
                session.store, group=node.path.strip("/"), consolidated=False, mode="a"
            )
    session.commit("all of it")
    return folder


def test_an_icechunk_repository_is_read_with_all_its_groups(tmp_path: Path) -> None:
    tree = record(steps=FEW)
    run = open_run(repository(tmp_path / "mine", tree))
    assert run.name == "modular addition" and run.version
    assert "_initial" not in run.tree.children and "net.0" in run.tree["ansatz/layers"].children
    np.testing.assert_array_equal(run.tree["tangent"]["eigenvalues"], tree["tangent"]["eigenvalues"])
    assert "features read" in write_report(tmp_path / "mine", tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_repository_without_a_commit_is_an_empty_run(tmp_path: Path) -> None:
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "new")))
    assert not open_run(tmp_path / "new").tree.children


def test_an_exported_netcdf_file_is_read(tmp_path: Path) -> None:
    pytest.importorskip("netCDF4")
    data = xr.Dataset({"loss": ("step", [1.0, 0.5])}, coords={"step": [0, 1]})
    xr.DataTree.from_dict({"/training": data}).to_netcdf(tmp_path / "run.nc")
    assert open_run(tmp_path / "run.nc").tree["training"]["loss"].values.tolist() == [1.0, 0.5]


def test_a_file_that_is_no_run_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match="expected a recorded run.*got.*notes.txt.*give the folder"):
        open_run(tmp_path / "notes.txt")


def test_a_page_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="the page cannot be written to .*taken/r.html: .*; name another place"):
        write_report(record(steps=FEW), tmp_path / "taken" / "r.html")


def test_a_folder_that_is_no_run_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match="expected a recorded run.*got.*give the folder"):
        open_run(tmp_path)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist; give the folder of a run"):
        write_report(tmp_path / "nowhere", tmp_path / "r.html")


def test_no_runs_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path / "r.html")


def test_a_report_is_replaced_whole_and_leaves_no_draft(tmp_path: Path) -> None:
    for _ in range(2):
        write_report(xr.DataTree(), tmp_path / "new folder" / "r.html")
    assert [file.name for file in (tmp_path / "new folder").iterdir()] == ["r.html"]


def test_steps_at_which_nothing_was_measured_are_left_out() -> None:
    data = xr.Dataset(
        {"a": (("step", "layer"), [[1.0, np.nan], [np.nan, np.nan], [3.0, 4.0]])}, coords={"step": [0, 5, 9]}
    )
    values = variable(xr.DataTree.from_dict({"/g": data}), "g/a")
    assert values is not None and values["step"].values.tolist() == [0, 9]


def test_what_is_not_there_is_none_and_not_an_error() -> None:
    tree = xr.DataTree.from_dict(
        {"/g": xr.Dataset({"a": ("step", [np.nan]), "b": ("unit", [1.0])}, coords={"step": [0]})}
    )
    assert [variable(tree, path) for path in ("g/a", "g/b", "g/c", "h/a", "h/i/a")] == [None] * 5
    assert reference(tree, "g/a", "null") is None and errors(tree) == [] and first_step(None, 0.5) is None


def test_an_unreadable_log_of_errors_is_shown_as_it_is() -> None:
    (entry,) = errors(xr.DataTree.from_dict({"/errors": xr.Dataset(attrs={"log": "{not json"})}))
    assert entry["message"] == "{not json"
