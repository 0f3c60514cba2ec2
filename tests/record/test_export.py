"""The record as tables and as one netCDF file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from tangentlens.errors import BadInput
from tangentlens.record import export_record, open_record
from tangentlens.record.instruments import training
from tests.record.runs import NORM, recorded


@pytest.mark.parametrize(("kind", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_tables_hold_every_number_of_the_record(tmp_path: Path, kind: str, read) -> None:
    run = recorded(tmp_path / "run", [*training(), NORM], steps=3)
    files = {file.stem: file for file in export_record(run, tmp_path / "out", kind)}
    tree = open_record(run)
    table = read(files["training"])
    assert table["step"].tolist() == [0, 1, 2] and np.array_equal(table["probe_loss"], tree["training/probe_loss"])
    long = read(files["training.layer_norm"])
    assert long.columns.tolist() == ["step", "layer", "layer_norm"] and len(long) == 3 * 2
    assert {"mine", "overhead", "overhead.seconds"} <= set(files)


def test_netcdf_holds_the_same_groups_and_attributes(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [*training(), NORM], steps=3)
    (file,) = export_record(run, format="netcdf")
    assert file == tmp_path / "run.nc"
    tree = open_record(run)
    with xr.open_datatree(file) as read:
        assert read.attrs["model_fingerprint"] == tree.attrs["model_fingerprint"]
        assert read["training/layer_norm"].sel(layer="2", step=1) == tree["training/layer_norm"].sel(layer="2", step=1)
        assert read["training/probe_accuracy"].attrs["chance"] == "probe_chance"


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="writes csv, parquet, netcdf, got 'xlsx'"):
        export_record(recorded(tmp_path / "run", steps=1), format="xlsx")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(BadInput, match="cannot be written to .*taken: .*; choose another place"):
        export_record(recorded(tmp_path / "run", steps=1), tmp_path / "taken")


@pytest.mark.parametrize(("kind", "package"), [("csv", "pandas"), ("parquet", "pyarrow"), ("netcdf", "netCDF4")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, package: str) -> None:
    run = recorded(tmp_path / "run", steps=1)
    monkeypatch.setattr("tangentlens.record.export.find_spec", lambda name: None if name == package else object())
    with pytest.raises(
        BadInput, match=rf"{kind} is written by .* without {package}; run: pip install 'tangentlens\[exp"
    ):
        export_record(run, tmp_path / "out", kind)
    assert not (tmp_path / "out").exists()
