"""A recording run that is killed again and again: started by a test as a process of its own.

    python -m tests.record.killed FOLDER KILLS SEED

Children are forked from one process that has torch imported: a kill costs a tenth of a second instead of two. A reader
has the run open all the while and writes down whatever it sees that is not a whole step.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from tangentlens.errors import BadInput
from tangentlens.record import Measure, Recorder, every, open_record
from tangentlens.record.instruments import training
from tests.record.runs import small_model, small_probe

STEPS = 30
CHECKPOINT = 2
MEASURES = [
    *training(targets=False)[:2],
    Measure("mine/outputs", ("example", "output"), lambda snapshot: snapshot.outputs),
    Measure("mine/ragged", ("block",), lambda snapshot: torch.arange(snapshot.step // 10 + 1.0)),
    Measure(
        "mine/layers/*/gram",
        ("unit", "other"),
        lambda s: {n: p @ p.T for n, p in s.model.named_parameters() if p.ndim == 2},
    ),
]


def train(folder: Path, run: str) -> None:
    """A training script as people write them: it goes on from its own checkpoint, and records."""
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if (folder / run).exists() and is_finished(folder / run):
        return  # killed between its last commit and its exit
    recorder = Recorder(folder / run, model, small_probe(), MEASURES, every(1))
    checkpoint, begin = folder / f"{run}.pt", 0
    if checkpoint.exists():
        kept = torch.load(checkpoint)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        begin = kept["step"] + 1
    inputs, targets = small_probe()
    for step in range(begin, STEPS):
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.observe(step, loss=loss)
        if step % CHECKPOINT == 0:
            recorder.flush()
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{checkpoint}.new"
            )
            os.replace(f"{checkpoint}.new", checkpoint)
    recorder.close()


def is_finished(run: Path) -> bool:
    try:
        return open_record(run).attrs.get("state") == "finished"
    except BadInput:
        return False  # not made yet


def watch(folder: Path) -> None:
    """Open the run of the day over and over: every group has the same steps, and nothing of a step is missing."""
    seen, early, wrong, longest = 0, 0, [], {}
    stop = False
    while not stop:
        stop = (folder / "stop").exists()  # and one look more
        time.sleep(0.05)
        run = max(folder.glob("killed_*[0-9]"), default=folder / "none", key=lambda path: int(path.name[7:]))
        try:
            tree = open_record(run)
        except BadInput:
            tree = None  # not made yet
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
            continue
        if tree is None or not any("step" in node.sizes for node in tree.subtree):
            early += 1
            continue
        seen += 1
        found, length = torn(tree, longest.get(run.name, 0))
        wrong += found
        longest[run.name] = length
    result = {"seen": seen, "early": early, "wrong": wrong[:20], "longest": longest}
    (folder / "reader.json").write_text(json.dumps(result))


def torn(tree: xr.DataTree, before: int) -> tuple[list[str], int]:
    """Whatever is not a whole step, and how many steps there are; there were `before`."""
    wrong = []
    lengths = {node.path: node.sizes["step"] for node in tree.subtree if "step" in node.sizes}
    length = max(lengths.values())
    if set(lengths.values()) != {length} or length < before:
        wrong.append(f"steps {lengths} after {before}")
    if tree["training/step"].values.tolist() != list(range(length)):
        wrong.append(f"steps {tree['training/step'].values.tolist()}")
    for name in (
        "training/loss", "training/parameter_distance", "mine/outputs", "mine/layers/0.weight/gram", "overhead/share",
    ):  # fmt: skip
        if not np.isfinite(tree[name].values).all():
            wrong.append(f"{name} is not whole at {length} steps")
    if np.isfinite(tree["mine/ragged"].values).sum(1).tolist() != [step // 10 + 1 for step in range(length)]:
        wrong.append("ragged rows are not whole")
    return wrong, length


def forked(work: object, *arguments: object) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(*arguments)  # type: ignore[operator]
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def main(folder: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    torch.optim.Adam(small_model().parameters())  # what it imports is inherited by all children
    draw = random.Random(seed)
    started = time.monotonic()
    failed = os.waitpid(forked(train, folder, "whole"), 0)[1]
    duration = time.monotonic() - started
    reader = forked(watch, folder)
    killed = runs = 0
    status = 0
    while killed < kills or status != 0:
        runs += status == 0  # the run before has come to its end: kill another one
        child = forked(train, folder, f"killed_{runs}")
        if killed < kills:
            time.sleep(draw.uniform(0.0, 0.5 * duration))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        killed += os.WIFSIGNALED(status)
        failed += os.WIFEXITED(status) and status != 0
        if failed:
            break
    (folder / "stop").touch()
    os.waitpid(reader, 0)
    result = {"killed": killed, "failed": failed, "runs": runs, "duration": duration}
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
