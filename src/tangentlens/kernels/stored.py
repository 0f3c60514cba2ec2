"""A kernel on disk, read tile by tile: what `out=` leaves behind, and what spectra take instead of a tensor."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.errors import BadInput, DifferentRun
from tangentlens.kernels.memory import in_units
from tangentlens.kernels.tiles import Span, cut
from tangentlens.kernels.zarr_group import ARRAY, FINISHED, group_at

SCHEMA = "tangentlens kernel 1"
_AHEAD = 2  # tiles read while one is multiplied


@dataclass(frozen=True, eq=False, repr=False)
class StoredKernel:
    """A kernel as a zarr array, opened anew by every reading: it holds a path and no numbers.

    `xarray.open_zarr(path)` shows the same array by the names of its dimensions. As an operator it has rows n*C + c
    where both output axes are kept.
    """

    path: Path
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    dtype: torch.dtype
    region: int
    symmetric: bool
    attributes: dict[str, Any] = field(default_factory=dict)
    layer: int | None = None

    @property
    def outputs(self) -> int:
        """Outputs of an example along one axis: 1 where they were averaged over."""
        return self.shape[1] if len(self.shape) == 4 else 1

    @property
    def matrix_shape(self) -> tuple[int, int]:
        rows, columns = self.shape[:: len(self.shape) // 2]
        return rows * self.outputs, columns * self.outputs

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * torch.finfo(self.dtype).bits // 8

    def rows(self, start: int, stop: int) -> Float[Tensor, "example ..."]:
        """The kernel's rows of these examples, in memory."""
        if not 0 <= start < stop <= self.shape[0]:
            raise BadInput(f"rows of {self.shape[0]} examples, got {start} to {stop}; 0 <= start < stop")
        self.refuse_unfinished()
        return self._read(self._array(), (start, stop), (0, self.shape[len(self.shape) // 2]))

    def whole(self) -> Float[Tensor, "example ..."]:
        """All of it in memory."""
        return self.rows(0, self.shape[0])

    def __matmul__(self, vectors: Float[Tensor, "column *vector"]) -> Float[Tensor, "row *vector"]:
        """Each tile is read once; of a symmetric kernel only those on and above the diagonal."""
        rows, columns = self.matrix_shape
        if vectors.ndim not in (1, 2) or len(vectors) != columns:
            raise BadInput(
                f"a product with a kernel of {rows} x {columns} needs vectors of shape ({columns}, k), "
                f"got {tuple(vectors.shape)}; rows are example * {self.outputs} + output"
            )
        self.refuse_unfinished()
        block = vectors.reshape(columns, -1)
        block = block.to(torch.promote_types(block.dtype, self.dtype))
        result = block.new_zeros(rows, block.shape[1])
        for left, right, tile in self._tiles():
            matrix = tile.reshape(left.stop - left.start, -1).to(block)
            result[left] += matrix @ block[right]
            if self.symmetric and left != right:
                result[right] += matrix.T @ block[left]
        return result.reshape(rows, *vectors.shape[1:])

    def refuse_unfinished(self) -> None:
        done, regions = self.progress()
        if done < regions:
            raise BadInput(
                f"{self.path} is not finished: {done} of {regions} regions are written; "
                "run the same call with out= again, which goes on where it ended"
            )

    def progress(self) -> tuple[int, int]:
        """Regions written, and all there are; of a symmetric kernel a region and its mirror image are one."""
        finished = finished_regions(self.path, self.symmetric)
        if self.symmetric:
            return int(finished.triu().sum()), len(finished) * (len(finished) + 1) // 2
        return int(finished.sum()), finished.numel()

    def __repr__(self) -> str:
        sizes = " x ".join(f"{size:,} {dim}" for size, dim in zip(self.shape, self.dims))
        done, regions = self.progress()
        state = "finished" if done == regions else f"{done} of {regions} regions written"
        what = "" if self.layer is None else f" of {self.attributes['layers'][self.layer] or 'the model'}"
        kind = str(self.dtype).removeprefix("torch.")
        return f"StoredKernel({sizes}{what}, {kind}, {in_units(self.nbytes)} at {self.path}; {state})"

    def _repr_html_(self) -> str:
        how = f"xarray.open_zarr({str(self.path)!r})"
        return f"<p>{html.escape(repr(self))}</p><p><code>{html.escape(how)}</code></p>"

    def _array(self) -> Any:
        return group_at(self.path)[ARRAY]

    def _read(self, array: Any, rows: Span, columns: Span) -> Tensor:
        place: tuple[Any, ...] = (slice(*rows), slice(*columns))
        if len(self.shape) == 4:
            place = (slice(*rows), slice(None), slice(*columns), slice(None))
        return torch.from_numpy(array[place if self.layer is None else (self.layer, *place)])

    def _tiles(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Places in the matrix with their numbers, read ahead while one is worked on."""
        array, c = self._array(), self.outputs
        left = cut(0, self.shape[0], self.region)
        right = cut(0, self.shape[len(self.shape) // 2], self.region)
        pairs = ((r, s) for r in left for s in right if not self.symmetric or s >= r)
        with ThreadPoolExecutor(_AHEAD) as readers:
            waiting = [(r, s, readers.submit(self._read, array, r, s)) for r, s in islice(pairs, _AHEAD)]
            while waiting:
                r, s, tile = waiting.pop(0)
                numbers = tile.result()
                waiting += [(x, y, readers.submit(self._read, array, x, y)) for x, y in islice(pairs, 1)]
                yield slice(r[0] * c, r[1] * c), slice(s[0] * c, s[1] * c), numbers


def open_kernel(path: str | Path) -> StoredKernel | dict[str, StoredKernel]:
    """A kernel written with `out=`, by layer where it was written by layer."""
    group = group_at(path)
    attributes = dict(group.attrs)
    if attributes.get("schema") != SCHEMA:
        raise DifferentRun(
            f"expected a kernel of the form {SCHEMA!r} at {path}, got {attributes.get('schema')!r}; "
            "give the folder that out= wrote"
        )
    attributes["layers"] = json.loads(attributes["layers"])
    array = group[ARRAY]
    shape, dims = tuple(array.shape), tuple(array.metadata.dimension_names)
    dtype = getattr(torch, array.dtype.name)
    by_layer = dims[0] == "layer"
    one = StoredKernel(
        Path(path), shape[by_layer:], dims[by_layer:], dtype, int(attributes["region"]), bool(attributes["symmetric"]),
        attributes,
    )  # fmt: skip
    if not by_layer:
        return one
    return {
        name: StoredKernel(one.path, one.shape, one.dims, dtype, one.region, one.symmetric, attributes, number)
        for number, name in enumerate(attributes["layers"])
    }


def finished_regions(path: str | Path, symmetric: bool) -> Tensor:
    """Which regions are wholly written, as booleans; both of a region and its mirror image."""
    finished = torch.from_numpy(group_at(path)[FINISHED][...]).bool()
    return finished | finished.T if symmetric else finished
