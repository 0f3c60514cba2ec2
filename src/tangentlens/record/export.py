"""A run's numbers for other programs: CSV or Parquet tables, or one netCDF file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from tangentlens.errors import BadInput
from tangentlens.record.open import open_record, recorded_steps

if TYPE_CHECKING:
    import pandas as pd

FORMATS = {"csv": ("pandas",), "parquet": ("pandas", "pyarrow"), "netcdf": ("netCDF4",)}
"""Each kind of file with the packages that write it."""


def export_record(run: str | Path, out: str | Path | None = None, format: str = "csv") -> list[Path]:
    """Write the whole record and return the files: tables go into a folder, netCDF is one file with the same groups.

    Of each group, one table holds every number a step (a row a step), and each larger variable has a table of its own
    in long form: a row for each measured value, with its step and labels.
    """
    if format not in FORMATS:
        raise BadInput(f"export writes {', '.join(FORMATS)}, got {format!r}; choose one of them")
    missing = [package for package in FORMATS[format] if find_spec(package) is None]
    if missing:
        raise BadInput(
            f"export to {format} is written by {' and '.join(FORMATS[format])}, got an installation without "
            f"{' and '.join(missing)}; run: pip install 'tangentlens[export]'"
        )
    tree = open_record(run)
    if not recorded_steps(tree):
        raise BadInput(f"export writes recorded steps, got none in {run}; wait until the first one is committed")
    try:
        return _written(run, tree, out, format)
    except OSError as error:
        place, reason = out if out is not None else f"beside {run}", error.strerror or error
        raise BadInput(f"the export cannot be written to {place}: {reason}; choose another place for it") from error


def _written(run: str | Path, tree: xr.DataTree, out: str | Path | None, format: str) -> list[Path]:
    if format == "netcdf":
        file = Path(out) if out is not None else beside(run, "nc")
        file.parent.mkdir(parents=True, exist_ok=True)
        _netcdf_ready(tree).to_netcdf(file)
        return [file]
    folder = Path(out) if out is not None else beside(run, format)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, table in tables(tree).items():
        file = folder / f"{name}.{format}"
        table.to_csv(file, index=False) if format == "csv" else table.to_parquet(file, index=False)
        files.append(file)
    return files


def beside(run: str | Path, ending: str) -> Path:
    """Next to the run's folder, or here when the run is not on this machine.

    >>> print(beside("runs/mine", "csv"), beside("s3://bucket/runs/mine/", "nc"))
    runs/mine.csv mine.nc
    """
    place = str(run).rstrip("/")
    return Path(f"{place.rpartition('/')[2] if '://' in place else place}.{ending}")


def tables(tree: xr.DataTree) -> dict[str, pd.DataFrame]:
    """The record as tables by name: `training`, `tangent.eigenvalues`, ..."""
    found: dict[str, pd.DataFrame] = {}
    for node in tree.subtree:
        data, group = node.to_dataset(inherit=False), node.path.strip("/").replace("/", ".")
        numbers = data[[name for name, variable in data.data_vars.items() if variable.dims == ("step",)]]
        if numbers.data_vars:
            found[group] = numbers.reset_coords(drop=True).to_dataframe().reset_index()
        for name in data.data_vars:
            if data[name].dims != ("step",):
                long = data[name].to_series().dropna().reset_index()
                found[f"{group}.{name}"] = long
    return found


def _netcdf_ready(tree: xr.DataTree) -> xr.DataTree:
    """netCDF attributes are text and numbers."""
    plain = tree.load().copy()
    for node in plain.subtree:
        node.attrs = {key: _attribute(value) for key, value in node.attrs.items()}
        for variable in node.data_vars.values():
            if "bounds" in variable.attrs:  # in a netCDF file this word names another variable
                variable.attrs["valid_range"] = variable.attrs.pop("bounds")
    return plain


def _attribute(value: object) -> object:
    return value if isinstance(value, str | int | float | list | tuple) and not isinstance(value, bool) else str(value)
