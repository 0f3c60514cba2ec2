"""From a kernel that is wanted to a kernel on disk: where it comes from is written beside it, then its tiles."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlens.capture.measuring import Globs, Measurement, measuring
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs, Probe, probe
from tangentlens.capture.undisturbed import eager
from tangentlens.kernels.agreed import free_for_each
from tangentlens.kernels.blockwise import Blockwise
from tangentlens.kernels.fingerprints import fingerprint, in_words, named_tensors, weights_fingerprint
from tangentlens.kernels.on_disk import OnDisk, Wanted, prepared, refuse_another
from tangentlens.kernels.stored import StoredKernel, finished_regions, open_kernel
from tangentlens.kernels.stripes import kept_bytes, region_rows

Out = str | Path
"""A folder for a zarr array, or one that a call like this began."""

_SHOWN = 3  # examples whose outputs tell one outputs= from another


@torch.no_grad()
def written(
    work: Blockwise, out: Out, model: nn.Module, inputs: Inputs, others: Inputs | None, by_layer: bool
) -> StoredKernel | dict[str, StoredKernel]:
    """The kernel at `out`, computed as far as it is not there yet."""
    costs = work.costs()
    origin = {
        "versions": _versions(),
        **sources(model, inputs, others),
        **choices(work.measurement, work.rows),
        "reduction": work.reduction,
        "dtype": str(work.measurement.dtype).removeprefix("torch."),
    }
    symmetric = work.columns is None
    wanted = Wanted(
        tuple(work.groups()), by_layer, work.shape(costs.outputs), work.measurement.dtype, symmetric, origin
    )
    width = costs.outputs if work.reduction == "full" else 1
    kept, free = kept_bytes(costs, wanted.dtype), free_for_each(work.job, work.measurement.device)
    region = region_rows(work.rows.length, width, len(wanted.groups), work.job.size, kept, free)
    path = Path(out)
    region = work.job.from_first(lambda: prepared(path, wanted, region))
    if not work.job.from_first(lambda: bool(finished_regions(path, symmetric).all())):
        work.write(OnDisk(path, wanted, region, work.job), costs)
    work.job.agree()  # every rank has written its tiles
    return open_kernel(path)


def sources(model: nn.Module, inputs: Inputs, others: Inputs | None) -> dict[str, Any]:
    """Which model and which examples, so that others are told from them."""
    plain, rows = eager(model), list(named_tensors({"inputs": probe(inputs).inputs}))
    columns = [] if others is None else list(named_tensors({"inputs": probe(others).inputs}))
    return {
        "model": type(plain).__name__,
        "model_fingerprint": weights_fingerprint(plain),
        "probe": in_words(rows),
        "probe_fingerprint": fingerprint(rows),
        "others": in_words(columns),
        "others_fingerprint": fingerprint(columns) if columns else "",
    }


def choices(measurement: Measurement, rows: Probe) -> dict[str, Any]:
    """Which parameters and outputs; the outputs by their values, for a function has no name to be told by."""
    first = measurement.reader.run(rows.rows(0, min(_SHOWN, rows.length)))[1].detach()
    return {
        "parameters": json.dumps(list(measurement.wanted)),
        "outputs": first.shape[1],
        "first_outputs": [*first.flatten()[:64].tolist(), *_mixed(first.flatten())],
    }


def _mixed(numbers: Tensor) -> list[float]:
    """Random combinations of all of them, at the size of one: those beyond the first show here."""
    signs = torch.randint(2, (3, len(numbers)), generator=torch.Generator().manual_seed(len(numbers))) * 2 - 1
    return (signs.double() @ numbers.cpu().double() / len(numbers) ** 0.5).tolist()


def refuse_another_origin(
    stored: StoredKernel, model: nn.Module, inputs: Inputs, outputs: Outputs | None, parameters: Globs | None
) -> None:
    """A kernel on disk speaks for one model and probe: the modes of another are not its own."""
    with measuring(model, inputs, outputs, parameters, check=False) as measurement:
        mine = sources(model, inputs, None) | choices(measurement, measurement.prepared(inputs))
    refuse_another(stored.attributes, mine, stored.path)


def _versions() -> str:
    """Of what computed and wrote the numbers."""
    found = {}
    for package in ("tangentlens", "torch", "zarr"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a checkout that is on the path but not installed
            found[package] = "not installed"
    return json.dumps(found)
