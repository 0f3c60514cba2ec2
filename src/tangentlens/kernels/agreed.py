"""What the processes of a job have to agree on: the same model and inputs, and one reading of every parameter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import Tensor

from tangentlens.capture.measuring import Measurement
from tangentlens.capture.probe import Probe, tensors_in
from tangentlens.capture.reader import StructureChanged
from tangentlens.distributed import Again, Job
from tangentlens.errors import BadInput
from tangentlens.kernels.captures import Captures
from tangentlens.kernels.memory import free_bytes

Result = TypeVar("Result")


def check_alike(job: Job, measurement: Measurement, *probes: Probe | None) -> None:
    """Every rank brings the same weights and the whole inputs: kernels of different models must not be mixed."""
    if job.size == 1:
        return
    # float64 and a tolerance: ranks may sum in another order
    sums = {f"parameter {name}": _sums(tensor) for name, tensor in measurement.wanted.items()}
    for position, probe in enumerate(one for one in probes if one is not None):
        found = tensors_in(probe.inputs, ("inputs", "others")[position])
        sums |= {name: _sums(t) for name, t in found.items()}
    seen = job.objects(sums)  # all ranks see the same and raise alike
    for rank, other in enumerate(seen):
        wrong = [name for name in sums if name not in other or not _close(other[name], seen[0][name])]
        if wrong:
            raise BadInput(
                f"every rank must pass the same model and the whole inputs, got {wrong[0]} of rank {rank} unlike that "
                "of rank 0; seed all ranks alike or load one checkpoint, and let ranks= share the rows out"
            )


def in_agreement(
    job: Job, measurement: Measurement, work: Callable[[], Result], captures: Captures | None = None
) -> Result:
    """Run work in which every rank captures examples of its own; where one must read anew, all begin again."""
    if job.size == 1:
        return measurement.retried(work)

    def once() -> Result:
        try:
            return work()
        except Again:
            pass
        except StructureChanged:
            with suppress(Again):
                job.ask_again()
        learn_from_each_other(job, measurement, captures)
        raise StructureChanged

    return measurement.retried(once)


def read_alike(job: Job, measurement: Measurement, captures: Captures | None = None) -> None:
    """After capturing and before anything is combined: start again if two ranks read a parameter differently."""
    if job.size > 1 and learn_from_each_other(job, measurement, captures):
        raise Again


def learn_from_each_other(job: Job, measurement: Measurement, captures: Captures | None) -> bool:
    """Every rank takes over what any rank found; whether they had read differently."""
    reader = measurement.reader
    mine: dict[str, Any] = {
        "unreadable": dict(reader.unreadable),
        "gathered": set(reader.gathered),
        "structure": dict(reader._structure),
        "touched": set(measurement.touched),
        "folds": {} if captures is None else dict(captures.folds),
        "may": (True,) * 3 if captures is None else (captures.may_fold, captures.may_separate, captures.may_slice),
    }
    seen = job.objects(mine)
    readings = [(other["unreadable"].keys(), other["gathered"], other["may"]) for other in seen]
    cuts, folds = _contradicted(seen, "structure"), _contradicted(seen, "folds")
    for name in cuts:
        reader.gathered.add(name)
        reader._structure.pop(name, None)
    for other in seen:
        reader.unreadable.update({n: why for n, why in other["unreadable"].items() if n not in reader.unreadable})
        reader.gathered |= other["gathered"]
        measurement.touched |= other["touched"]
    if captures is not None:
        captures.may_fold = all(other["may"][0] for other in seen) and not folds
        captures.may_separate = all(other["may"][1] for other in seen)
        captures.may_slice = all(other["may"][2] for other in seen)
    return any(one != readings[0] for one in readings) or bool(cuts) or bool(folds)


def _contradicted(seen: list[dict[str, Any]], part: str) -> set[Any]:
    """Keys to which two ranks give different values."""
    values: dict[Any, Any] = {}
    return {key for other in seen for key, value in other[part].items() if values.setdefault(key, value) != value}


def free_for_each(job: Job, device: torch.device) -> int:
    """Memory every rank may count on: the least of any, where ranks on one device divide what is free there."""
    return min(job.objects(free_bytes(device) // job.sharing(device)))


def _sums(tensor: Tensor) -> tuple[tuple[int, ...], float, float]:
    values = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    values = values.byte() if values.dtype == torch.bool else values
    size = values.abs().sum(dtype=torch.float64)
    return tuple(tensor.shape), float(values.sum(dtype=torch.float64)), float(size)


def _close(left: Any, right: Any) -> bool:
    if left[0] != right[0]:
        return False
    scale = 1e-6 * max(abs(right[2]), 1e-300)
    return all(a == b or abs(a - b) <= scale or (a != a and b != b) for a, b in zip(left[1:], right[1:]))
