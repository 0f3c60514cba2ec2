"""A run on disk: rows, labels, growth, and commits that are whole or absent."""

from __future__ import annotations

import re
from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr

from tangentlens.errors import BadInput
from tangentlens.record.measure import Row
from tangentlens.record.open import errors, open_record, recorded_steps
from tangentlens.record.store import Entry, RunStore

BEGIN = {"schema": "tangentlens record 1", "state": "recording"}


def row(value: object, dims: tuple[str, ...] = (), dtype: str = "float64", **labels: object) -> Row:
    return Row(dims, np.asarray(value, dtype=dtype), labels, {})


def begun(run: Path) -> RunStore:
    store = RunStore(run)
    store.begin(BEGIN, None)
    return store


def appended(store: RunStore, step: int, **rows: Row) -> None:
    store.append(Entry(step, {f"mine/{name}": item for name, item in rows.items()}))


def test_what_is_appended_is_read_back_with_dims_and_dtypes(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    matrices = np.random.default_rng(0).normal(size=(70, 3, 2)).astype(np.float32)
    for step in range(70):  # more than one chunk
        appended(store, 2 * step, number=row(step / 3), matrix=row(matrices[step], ("unit", "other"), "float32"))
    data = open_record(tmp_path / "run")["mine"]
    assert data["matrix"].dims == ("step", "unit", "other") and data["matrix"].dtype == np.float32
    assert np.array_equal(data["matrix"], matrices) and np.array_equal(data["number"], np.arange(70) / 3)
    assert data["step"].values.tolist() == list(range(0, 140, 2)) == recorded_steps(open_record(tmp_path / "run"))


def test_a_store_opened_again_goes_on_inside_a_half_filled_chunk(tmp_path: Path) -> None:
    for step in range(7):
        store = begun(tmp_path / "run") if step == 0 else RunStore(tmp_path / "run")
        assert store.steps == list(range(step))
        appended(store, step, vector=row([step, -step], ("mode",)))
        store.close()
    data = open_record(tmp_path / "run")["mine"]
    assert data["vector"].values.tolist() == [[s, -s] for s in range(7)]


def test_a_variable_that_begins_late_or_pauses_is_missing_at_the_other_steps(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    appended(store, 0, always=row(0))
    appended(store, 1, always=row(1), late=row([5.0], ("mode",)))
    appended(store, 2, always=row(2))
    store.append(Entry(3, {"other/value": row(1)}))
    tree = open_record(tmp_path / "run")
    assert np.array_equal(tree["mine/late"].values[:, 0], [np.nan, 5, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(tree["mine/always"].values, [0, 1, 2, np.nan], equal_nan=True)
    assert np.array_equal(tree["other/value"].values, [np.nan, np.nan, np.nan, 1], equal_nan=True)
    assert tree["other/step"].values.tolist() == [0, 1, 2, 3]


def test_a_dimension_that_grows_pads_what_was_shorter(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    appended(store, 0, a=row([1.0], ("block",)), b=row([7.0], ("block",)))
    appended(store, 1, a=row([1.0, 2.0, 3.0], ("block",)), b=row([8.0], ("block",)))
    appended(store, 2, a=row([4.0, 5.0], ("block",)))
    data = open_record(tmp_path / "run")["mine"]
    nan = np.nan
    assert np.array_equal(data["a"], [[1, nan, nan], [1, 2, 3], [4, 5, nan]], equal_nan=True)
    assert np.array_equal(data["b"], [[7, nan, nan], [8, nan, nan], [nan] * 3], equal_nan=True)


def test_values_stand_under_their_labels_whatever_their_order(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    appended(store, 0, a=row([1.0, 2.0], ("layer",), layer=["x", "y"]))
    appended(store, 1, a=row([3.0, 4.0], ("layer",), layer=["y", "z"]))
    store.close()
    store = RunStore(tmp_path / "run")
    appended(store, 2, a=row([5.0], ("layer",), layer=["x"]))
    data = open_record(tmp_path / "run")["mine"]
    assert data["layer"].values.tolist() == ["x", "y", "z"]
    assert np.array_equal(data["a"], [[1, 2, np.nan], [np.nan, 3, 4], [5, np.nan, np.nan]], equal_nan=True)


def test_fixed_data_of_a_group_are_coordinates(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    counts = (("token", "label"), np.arange(4.0).reshape(2, 2))
    appended(store, 0, s=row(np.ones((2, 2)), ("token", "label"), token=["good", "bad"], cooccurrence=counts))
    data = open_record(tmp_path / "run")["mine"].to_dataset()
    assert "cooccurrence" in data.coords and data["s"].sel(token="bad").coords["cooccurrence"].values.tolist() == [2, 3]


def test_a_failed_append_leaves_the_last_step_and_the_next_one_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = begun(tmp_path / "run")
    appended(store, 0, a=row([1.0], ("layer",), layer=["x"]))
    with monkeypatch.context() as patched:
        patched.setattr(store, "_write", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            appended(store, 1, a=row([2.0], ("layer",), layer=["y"]))
    appended(store, 2, a=row([3.0], ("layer",), layer=["x"]))
    assert open_record(tmp_path / "run")["mine/a"].values.tolist() == [[1], [3]]


FIXED = (("token",), np.arange(2.0))


@pytest.mark.parametrize(
    ("path", "bad", "message"),
    [
        ("mine/a", row([1.0, 2.0], ("layer",)), "layer has 1 labels, got 2 values; label them all"),
        ("mine/a", row(1.0), r"recorded with \('layer',\), got \(\)"),
        ("mine/layer", row(1.0), "is the name of a coordinate of mine"),
        ("mine/step", row(1.0), "is the name of a coordinate of mine"),
        ("mine/counts", row(1.0), "is the name of a coordinate of mine"),
        ("mine/b", row([1.0], ("token",), a=FIXED), "lies along a, the name of a variable of mine"),
        ("mine/b", row([1.0] * 3, ("token",)), "counts is fixed with 2 entries along token, got 3"),
        ("mine", row(1.0), "a variable and a group at once"),
        ("mine/a/deep", row(1.0), "a variable and a group at once"),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_variable_that_contradicts_the_record_is_left_out_and_noted(
    tmp_path: Path, path: str, bad: Row, message: str, together: bool
) -> None:
    good = row([1.0], ("layer",), layer=["x"], counts=FIXED)
    entries = [Entry(0, {"mine/a": good}), Entry(1, {path: bad, "mine/good": row(5)}), Entry(2, {"mine/a": good})]
    store = begun(tmp_path / "run")
    for part in [entries] if together else [[entry] for entry in entries]:
        store.append(*part)
    tree = open_record(tmp_path / "run")
    assert tree["mine/step"].values.tolist() == [0, 1, 2] and tree["mine/good"].values[1] == 5
    (failure,) = errors(tree)
    assert (failure["step"], failure["measure"]) == (1, path) and re.search(message, failure["message"])
    assert tree["mine/a"].values[[0, 2]].tolist() == [[1], [1]]
    store.close()
    again = RunStore(tmp_path / "run")
    assert again.failures == [failure]


def test_a_reader_keeps_the_snapshot_it_opened(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    appended(store, 0, a=row(0))
    before = open_record(tmp_path / "run")
    for step in range(1, 4):
        appended(store, step, a=row(step))
    assert before["mine/a"].values.tolist() == [0] and open_record(tmp_path / "run")["mine/a"].values.tolist() == [
        0,
        1,
        2,
        3,
    ]


def test_every_step_is_one_commit(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    for step in (0, 1, 10):
        appended(store, step, a=row(step), b=row([1.0], ("mode",)))
    messages = [commit.message for commit in store.repository.ancestry(branch="main")]
    assert messages[:3] == ["step 10", "step 1", "step 0"] and messages[3] == "begin"


def test_steps_that_share_a_commit_are_what_single_ones_would_be(tmp_path: Path) -> None:
    entries = [
        Entry(step, {"mine/a": row(step), "mine/b": row(np.arange(step % 3 + 1.0), ("block",)), f"late/{step // 50}":
        row(1)},
              {"last": step}, {"mine": {"note": step}})
        for step in range(100)
    ]  # fmt: skip
    single, together = begun(tmp_path / "single"), begun(tmp_path / "together")
    for entry in entries:
        single.append(entry)
    for start, stop in ((0, 3), (3, 90), (90, 100)):
        together.append(*entries[start:stop])
    xr.testing.assert_identical(open_record(tmp_path / "single"), open_record(tmp_path / "together"))
    assert len(list(together.repository.ancestry(branch="main"))) == 3 + 2  # and its beginnings


def test_the_repository_opens_with_icechunk_and_xarray_alone(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    appended(store, 3, a=row([1.0, 2.0], ("layer",), layer=["x", "y"]))
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "run")))
    data = xr.open_zarr(repository.readonly_session("main").store, group="mine", consolidated=False, chunks=None)
    assert data["a"].sel(step=3, layer="y").item() == 2


def test_steps_that_go_back_are_refused(tmp_path: Path) -> None:
    store = begun(tmp_path / "run")
    appended(store, 5, a=row(0))
    with pytest.raises(ValueError, match="steps must increase, got 5 after 5"):
        appended(store, 5, a=row(0))


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    mine = begun(tmp_path / "run")
    theirs = RunStore(tmp_path / "run")
    appended(mine, 0, a=row(0))
    with pytest.raises(BadInput, match="another process has written to"):
        appended(theirs, 0, a=row(0))
    assert open_record(tmp_path / "run")["mine/a"].values.tolist() == [0]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(BadInput, match="got .*taken/run, which cannot be made .*; choose another place"):
        RunStore(tmp_path / "taken" / "run")


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="got a folder of other files"):
        RunStore(tmp_path)
    with pytest.raises(BadInput, match="there is no recorded run at"):
        open_record(tmp_path / "nowhere")


def test_a_run_whose_last_commit_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    begun(tmp_path / "run").close()
    for file in (tmp_path / "run" / "snapshots").iterdir():
        file.unlink()
    for read in (RunStore, open_record):
        with pytest.raises(BadInput, match="files are whole, got .*run .*; copy it again"):
            read(tmp_path / "run")
