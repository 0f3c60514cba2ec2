"""Where data lies: the folder given, TANGENTLENS_DATA, or shared/data beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

from tangentlens.errors import BadInput

_CHECKOUT = Path(__file__).resolve().parents[4]


class MissingData(BadInput):
    """A dataset is not in the data folder, or there is no such folder."""


def data_folder(given: Path | str | None = None) -> Path:
    """The folder that holds one subfolder per dataset."""
    if given is not None:
        tried = [Path(given)]
    elif "TANGENTLENS_DATA" in os.environ:
        tried = [Path(os.environ["TANGENTLENS_DATA"])]
    else:
        tried = [_CHECKOUT.parent / "shared" / "data", Path.cwd().parent / "shared" / "data"]
    for folder in tried:
        if folder.is_dir():
            return folder
    raise MissingData(
        f"no data folder at {' or '.join(map(str, tried))}; set TANGENTLENS_DATA to the folder that holds the datasets"
    )


def data_file(dataset: str, name: str, given: Path | str | None = None) -> Path:
    """One file (or folder) of a dataset; says what is missing and where it was looked for."""
    file = data_folder(given) / dataset / name
    if not file.exists():
        raise MissingData(f"{dataset} needs {file}, which is not there; put it there or set TANGENTLENS_DATA")
    return file
