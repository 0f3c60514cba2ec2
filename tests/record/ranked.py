"""Recorders under DistributedDataParallel and FSDP, on two gloo processes: started by a test as a process of its own.

    python -m tests.record.ranked FOLDER

Both ranks are forked from one process that has torch imported. Each scenario writes what a rank saw as
FOLDER/<scenario>.<rank>.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tangentlens.capture.measuring import Measurement
from tangentlens.record import Measure, Recorder, Snapshot, every, when
from tangentlens.record.instruments import training
from tests.record.runs import NORM, small_model, small_probe

RANKS = 2


def steps(model: nn.Module, recorder: Recorder | None, count: int = 6) -> None:
    """Each rank trains on its own half of the data."""
    inputs, targets = small_probe()
    inputs, targets = inputs[dist.get_rank() :: RANKS], targets[dist.get_rank() :: RANKS]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(count):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if recorder is not None:
            recorder.observe(step, loss=loss)


def parallel() -> nn.Module:
    return nn.parallel.DistributedDataParallel(small_model())


def sums(model: nn.Module) -> list[str]:
    """Weights to the last bit."""
    return [tensor.double().numpy().tobytes().hex() for tensor in model.state_dict().values()]


def same_weights(folder: Path) -> dict[str, Any]:
    plain, recorded = parallel(), parallel()
    steps(plain, None)
    with Recorder(folder / "run", recorded, small_probe(), [*training(), NORM], every(2)) as recorder:
        steps(recorded, recorder)
    return {"plain": sums(plain.module), "recorded": sums(recorded.module), "files": recorder._logbook is not None}


def same_weights_under_all_instruments(folder: Path) -> dict[str, Any]:
    """Alone on the first rank, and with the rows shared out."""
    plain = parallel()
    steps(plain, None, 3)
    ended = [sums(plain.module)]
    for ranks in (False, True):
        model = parallel()
        with Recorder(folder / f"run{int(ranks)}", model, small_probe(20), None, every(2), ranks=ranks) as recorder:
            steps(model, recorder, 3)
        ended.append(sums(model.module))
    return {"ended": ended}


def only_the_first_rank_measures(folder: Path) -> dict[str, Any]:
    asked: list[int] = []
    measure = Measure("mine/asked", (), lambda snapshot: asked.append(snapshot.step) or 1.0)
    model = parallel()
    with Recorder(folder / "run", model, small_probe(), [measure], every(1)) as recorder:
        steps(model, recorder, 3)
    return {"asked": asked}


def a_value_decides_alike(folder: Path) -> dict[str, Any]:
    model = parallel()
    recorder = Recorder(folder / "run", model, small_probe(), [NORM], when("loss", below=0.5))
    # the first rank's loss passes the level, the other's does not
    values = [[1.0, 0.4, 0.3], [1.0, 1.0, 1.0]][dist.get_rank()]
    recorded = [recorder.observe(step, loss=value) for step, value in enumerate(values)]
    recorder.close()
    return {"recorded": recorded}


def failing(snapshot: Snapshot) -> float:
    raise ZeroDivisionError("no such number")


def a_failing_measure_stops_nobody(folder: Path) -> dict[str, Any]:
    model = parallel()
    with Recorder(folder / "run", model, small_probe(), [Measure("mine/fails", (), failing)], every(1)) as recorder:
        steps(model, recorder, 3)
    return {"done": True}


def strict_stops_every_rank(folder: Path) -> dict[str, Any]:
    model = parallel()
    measures = [Measure("mine/fails", (), failing)]
    try:
        with Recorder(folder / "run", model, small_probe(), measures, every(1), strict=True) as recorder:
            steps(model, recorder, 3)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": ""}


def another_model_is_refused_on_every_rank(folder: Path) -> dict[str, Any]:
    Recorder(folder / "run", parallel(), small_probe(), [NORM]).close()
    dist.barrier()
    try:
        Recorder(folder / "run", nn.Linear(6, 3), small_probe(), [NORM], resume=True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": ""}


def different_steps_are_noticed(folder: Path) -> dict[str, Any]:
    recorder = Recorder(folder / "run", parallel(), small_probe(), [NORM], every(1))
    try:
        recorder.observe(dist.get_rank())
    except RuntimeError as error:
        return {"error": str(error)}
    return {"error": ""}


def sharded(folder: Path) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard

    runs = []
    for recorded in (False, True):
        model = small_model()
        fully_shard(model)
        recorder = None
        if recorded:
            recorder = Recorder(
                folder / "run", model, small_probe(), [*training(), NORM], every(1), unsharded=small_model(seed=9)
            )
        steps(model, recorder, 3)
        if recorder:
            recorder.close()
        runs.append(sums_of_sharded(model))
    return {"plain": runs[0], "recorded": runs[1]}


def sums_of_sharded(model: nn.Module) -> list[str]:
    return [tensor.full_tensor().double().numpy().tobytes().hex() for tensor in model.state_dict().values()]


def sharded_without_a_plain_copy_is_refused(folder: Path) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard

    model = small_model()
    fully_shard(model)
    try:
        Recorder(folder / "run", model, small_probe(), [NORM])
    except ValueError as error:
        return {"error": str(error)}
    return {"error": ""}


READINGS = (
    Measure("shared/kernel", ("example", "other"), lambda snapshot: snapshot.entk()),
    Measure("part/kernel", ("example", "other"), lambda snapshot: snapshot.subset(5).entk()),
    Measure("layers/kernel", ("layer", "example", "other"), lambda snapshot: snapshot.entk_by_layer()),
    Measure("maps/*/moment", ("unit", "other"),
            lambda snapshot: {name: m.input_moment for name, m in snapshot.layer_moments().items()}),
    Measure("shared/fails", (), failing),
)  # fmt: skip


def measures_are_shared_out(folder: Path) -> dict[str, Any]:
    """The same record with and without the other rank's help, and how many examples each rank captured."""
    pieces = Measurement.pieces
    captured: list[int] = []

    def counted(measurement: Measurement, chunk: Any, *rest: Any, **more: Any) -> Any:
        captured.append(chunk.length)
        return pieces(measurement, chunk, *rest, **more)

    counts = []
    for ranks in (False, True):
        captured.clear()
        Measurement.pieces = counted  # type: ignore[method-assign]
        model = parallel()
        with Recorder(folder / f"run{int(ranks)}", model, small_probe(), READINGS, every(1), ranks=ranks) as recorder:
            steps(model, recorder, 2)
        Measurement.pieces = pieces  # type: ignore[method-assign]
        counts.append(sum(captured))
    return {"captured": counts}


SCENARIOS: list[Callable[[Path], dict[str, Any]]] = [
    same_weights, same_weights_under_all_instruments, only_the_first_rank_measures, a_value_decides_alike,
    a_failing_measure_stops_nobody, strict_stops_every_rank, another_model_is_refused_on_every_rank,
    different_steps_are_noticed, sharded, sharded_without_a_plain_copy_is_refused, measures_are_shared_out,
]  # fmt: skip


def one_rank(folder: Path, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    for scenario in SCENARIOS:
        place = folder / scenario.__name__
        place.mkdir(exist_ok=True)
        start = time.monotonic()
        result = scenario(place)
        result["seconds"] = time.monotonic() - start
        (folder / f"{scenario.__name__}.{rank}.json").write_text(json.dumps(result))
        dist.barrier()
    dist.destroy_process_group()


def main(folder: Path) -> int:
    torch.set_num_threads(1)
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                one_rank(folder, rank)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
