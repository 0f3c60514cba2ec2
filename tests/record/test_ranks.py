"""Under DDP and FSDP one rank writes, all ranks agree, and nobody waits for somebody who failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tangentlens.record import errors, open_record
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All scenarios, run once on two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.record.ranked", str(folder)]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def seen(folder: Path, scenario: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{scenario}.{rank}.json").read_text()) for rank in range(2)]


def test_a_recorded_ddp_run_ends_with_the_very_weights_of_an_unrecorded_one(folder: Path) -> None:
    first, second = seen(folder, "same_weights")
    assert first["plain"] == first["recorded"] == second["plain"] == second["recorded"]
    assert first["files"] and not second["files"]
    tree = open_record(folder / "same_weights" / "run")
    assert tree["mine/step"].values.tolist() == [0, 2, 4, 5] and tree.attrs["model"] == "Sequential"


def test_a_ddp_run_ends_with_the_same_weights_under_all_default_instruments(folder: Path) -> None:
    ended = [weights for each in seen(folder, "same_weights_under_all_instruments") for weights in each["ended"]]
    assert len(ended) == 6 and all(weights == ended[0] for weights in ended)
    for run in ("run0", "run1"):
        tree = open_record(folder / "same_weights_under_all_instruments" / run)
        assert {"training", "tangent", "forward", "ansatz"} <= set(tree.children) and errors(tree) == []


def test_only_the_first_rank_measures(folder: Path) -> None:
    assert [each["asked"] for each in seen(folder, "only_the_first_rank_measures")] == [[0, 1, 2], []]


def test_a_schedule_on_values_follows_the_first_rank(folder: Path) -> None:
    assert [each["recorded"] for each in seen(folder, "a_value_decides_alike")] == [[False, True, False]] * 2


def test_a_failing_measure_on_the_first_rank_keeps_nobody_waiting(folder: Path) -> None:
    results = seen(folder, "a_failing_measure_stops_nobody")
    assert all(each["done"] and each["seconds"] < 30 for each in results)
    log = errors(open_record(folder / "a_failing_measure_stops_nobody" / "run"))
    assert [entry["step"] for entry in log] == [0, 1, 2]


def test_strict_raises_on_every_rank(folder: Path) -> None:
    first, second = (each["error"] for each in seen(folder, "strict_stops_every_rank"))
    assert first == "ZeroDivisionError: no such number"
    assert second == "RuntimeError: recording failed on the first rank: ZeroDivisionError: no such number"


def test_another_model_is_refused_on_every_rank(folder: Path) -> None:
    first, second = (each["error"] for each in seen(folder, "another_model_is_refused_on_every_rank"))
    assert first.startswith("DifferentRun:") and "recorded with another model" in second


def test_ranks_that_show_different_steps_are_told(folder: Path) -> None:
    for each in seen(folder, "different_steps_are_noticed"):
        assert each["error"].startswith("all ranks should show the same step, got [0, 1]")


def test_a_sharded_model_is_measured_through_its_plain_copy(folder: Path) -> None:
    for each in seen(folder, "sharded"):
        assert each["plain"] == each["recorded"]
    tree = open_record(folder / "sharded" / "run")
    distance = tree["training/parameter_distance"].values
    assert errors(tree) == [] and (distance[1:] > distance[:-1]).all()


def test_a_sharded_model_without_a_plain_copy_is_refused(folder: Path) -> None:
    for each in seen(folder, "sharded_without_a_plain_copy_is_refused"):
        assert "pass unsharded=, the same model built once more without FSDP" in each["error"]


def test_ranks_that_share_the_work_record_what_one_records_alone(folder: Path) -> None:
    place = folder / "measures_are_shared_out"
    alone, shared = open_record(place / "run0"), open_record(place / "run1")
    kernel = shared["shared/kernel"]
    assert kernel.shape[1] == kernel.shape[2] > 5 == shared["part/kernel"].shape[1]
    for name in ("shared/kernel", "part/kernel", "layers/kernel"):
        assert abs(alone[name].values - shared[name].values).max() < 1e-5 * abs(alone[name].values).max()
    layers = list(shared["maps"].children)
    moments = [abs(alone[f"maps/{name}/moment"] - shared[f"maps/{name}/moment"]).max() for name in layers]
    assert layers and max(moments) < 1e-4
    assert {entry["type"] for entry in errors(shared)} == {"ZeroDivisionError"}
    first, second = (each["captured"] for each in seen(folder, "measures_are_shared_out"))
    assert second[0] == 0 and min(first[1], second[1]) > 0 and max(first[1], second[1]) < first[0]
