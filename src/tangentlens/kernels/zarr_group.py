"""The zarr group in which a kernel lies: the one file of this stage that needs zarr, and only when it is called."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tangentlens.errors import BadInput

ARRAY, FINISHED = "kernel", "progress/finished"


def group_at(path: str | Path, mode: Literal["r", "r+"] = "r") -> Any:
    """The group, to read or to fill."""
    import zarr

    if not (Path(path) / "zarr.json").is_file():
        raise BadInput(f"there is no kernel at {path}; give the folder that out= wrote")
    return zarr.open_group(str(path), mode=mode)


def create_group(
    path: Path,
    attributes: Mapping[str, Any],
    shape: Sequence[int],
    chunks: Sequence[int],
    regions: Sequence[int],
    dims: Sequence[str],
    dtype: str,
    labels: Mapping[str, Sequence[str]],
) -> None:
    """An array without numbers, marks that none of its regions is finished, and labels of its dimensions."""
    import zarr

    # made beside its place and moved there whole: a run killed here leaves nothing at the path
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with warnings.catch_warnings():  # of consolidated metadata and strings, both written by zarr's own means
        warnings.simplefilter("ignore")
        group = zarr.create_group(str(draft), attributes=dict(attributes))
        # not compressed: the digits of a kernel are as good as random
        group.create_array(
            ARRAY, shape=tuple(shape), chunks=tuple(chunks), dtype=dtype, compressors=None, fill_value=float("nan"),
            dimension_names=tuple(dims),
        )  # fmt: skip
        group.create_array(
            FINISHED, shape=tuple(regions), chunks=(1, regions[1]), dtype="uint8", compressors=None, fill_value=0
        )
        for dim, names in labels.items():
            group.create_array(dim, shape=(len(names),), dtype=str, dimension_names=(dim,))[...] = list(names)
        zarr.consolidate_metadata(str(draft))
    os.rename(draft, path)
