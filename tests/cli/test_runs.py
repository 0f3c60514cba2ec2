"""Commands that make a run and look at it, on a model and checkpoints of somebody else's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tangentlens.cli import main
from tangentlens.record import errors, open_record, recorded_steps

TARGET = """
import torch
def build():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(6, 3))
    inputs = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
    return model, (inputs, torch.arange(12) % 3)
def enormous():
    return torch.nn.Linear(4, 2000, bias=False), torch.zeros(3000, 4)
"""
STEPS = (0, 5, 10)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "their_script.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)  # runs are written beside the user
    return "their_script.py:build"


@pytest.fixture
def folder(tmp_path: Path, target: str) -> Path:
    """Checkpoints of a short training, as another script saved them."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3))
    torch.manual_seed(3)
    for step in STEPS:
        torch.save({"model_state_dict": model.state_dict(), "epoch": step}, folder / f"net_step{step}.pt")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return folder


@pytest.fixture
def measured(target: str, tmp_path: Path, once: Path) -> str:
    """A copy of a run that measure made, because a page is written into it."""
    shutil.copytree(once, tmp_path / "runs" / "once")
    return "runs/once"


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "their_script.py").write_text(TARGET)
    assert main(["measure", f"{folder}/their_script.py:build", "--record", str(folder / "once")]) == 0
    return folder / "once"


def test_check_prints_a_row_for_every_parameter(target: str, capsys) -> None:
    assert main(["check", target]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("0.weight", "0.bias", "3.weight", "3.bias", "fits"))
    assert main(["check", target, "--modes", "3"]) == 0
    assert "3 modes by d" in capsys.readouterr().out
    assert main(["check", target, "--parameters", "*.weight", "--full", "--dtype", "float64"]) == 0
    shown = capsys.readouterr().out
    assert "float64" in shown
    assert "0.bias" not in shown


def test_check_of_what_does_not_fit_is_exit_status_3(target: str, capsys) -> None:
    assert main(["check", target.replace("build", "enormous"), "--full"]) == 3
    shown = capsys.readouterr()
    assert "does not fit" in shown.out
    assert "entk_product" in shown.err


def test_measure_writes_a_record_of_one_step_and_its_page(once: Path) -> None:
    assert (once / "report.html").stat().st_size > 100_000
    tree = open_record(once)
    assert recorded_steps(tree) == [0]
    assert errors(tree) == []


def test_measuring_shows_how_far_it_is(target: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    from tangentlens.cli import measure

    moved: list[int] = []

    class Bar:
        def __init__(self, total: int, **_: object) -> None:
            self.total = total

        def update(self) -> None:
            moved.append(self.total)

    monkeypatch.setattr(measure, "tqdm", Bar)
    assert main(["measure", target]) == 0
    names = json.loads(open_record("runs/build").attrs["measures"])
    assert moved == [len(names)] * len(names)


def test_measuring_into_a_finished_run_is_refused(measured: str, target: str, capsys) -> None:
    assert main(["measure", target, "--record", measured]) == 2
    assert measured in capsys.readouterr().err


def test_follow_records_every_checkpoint_at_its_step(target: str, folder: Path, capsys) -> None:
    assert main(["follow", target, str(folder), "--record", "runs/theirs"]) == 0
    tree = open_record("runs/theirs")
    assert recorded_steps(tree) == list(STEPS)
    moved = tree["training/parameter_distance"].values
    assert moved[0] == 0  # the first checkpoint is the network before training
    assert (np.diff(moved) > 0).all()


def test_a_followed_run_equals_one_recorded_while_training(target: str, folder: Path) -> None:
    from tangentlens.cli.target import target as built
    from tangentlens.kernels import entk
    from tangentlens.kernels.weights import load_into

    assert main(["follow", target, str(folder), "--record", "runs/theirs"]) == 0
    asked = built(target)
    load_into(asked.model, folder / "net_step10.pt")
    trace = entk(asked.model, asked.inputs).trace().item()
    assert open_record("runs/theirs")["tangent/trace"].sel(step=10).item() == pytest.approx(trace, rel=1e-4)


def test_resume_goes_on_with_checkpoints_written_since(target: str, folder: Path, capsys) -> None:
    late = folder / "net_step10.pt"
    late.rename(folder.parent / late.name)
    assert main(["follow", target, str(folder), "--record", "runs/theirs"]) == 0
    (folder.parent / late.name).rename(late)
    assert main(["resume", "runs/theirs"]) == 0
    assert recorded_steps(open_record("runs/theirs")) == list(STEPS)


def test_a_training_scripts_run_is_resumed_by_that_script(target: str, capsys) -> None:
    from tangentlens.record import Recorder

    with Recorder("runs/script", nn.Linear(4, 2), probe=torch.randn(5, 4)) as recorder:
        recorder.observe(0)
    assert main(["resume", "runs/script"]) == 2
    assert "resume=True" in capsys.readouterr().err


def test_the_demo_records_every_instrument_and_can_be_resumed(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--steps", "1"]) == 0
    assert "runs/demo/report.html" in capsys.readouterr().out
    tree = open_record("runs/demo")
    assert recorded_steps(tree) == [0, 1]
    assert errors(tree) == []
    assert {"training", "tangent", "forward", "ansatz"} <= set(tree.children)
    assert tree["tangent/overlap"].sizes["family"] == 4
    assert main(["resume", "runs/demo"]) == 0
    assert recorded_steps(open_record("runs/demo")) == [0, 1]


def test_report_of_two_runs_is_one_page(measured: str, capsys) -> None:
    shutil.copytree(measured, "runs/twin")
    assert main(["report", measured, "runs/twin", "--out", "both.html"]) == 0
    assert "both.html" in capsys.readouterr().out
    assert Path("both.html").stat().st_size > 100_000


def test_a_report_without_a_run_is_exit_status_2(capsys) -> None:
    assert main(["report"]) == 2
    assert "at least one run" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["csv", "parquet", "netcdf"])
def test_export_prints_the_files_it_wrote(measured: str, kind: str, capsys) -> None:
    assert main(["export", measured, "--format", kind, "--out", f"exported.{kind}"]) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert files
    assert all(file.stat().st_size for file in files)


@pytest.mark.parametrize("command", ["report", "watch", "export", "resume"])
def test_a_run_that_is_not_there_is_exit_status_2(target: str, command: str, capsys) -> None:
    assert main([command, "runs/nowhere"]) == 2
    shown = capsys.readouterr().err
    assert "runs/nowhere" in shown
    assert len(shown.strip().splitlines()) == 1


def test_watching_in_the_terminal_ends_with_a_finished_run(measured: str, capsys) -> None:
    assert main(["watch", measured, "--text"]) == 0
    assert capsys.readouterr().out.strip()


def test_the_settings_of_a_run_are_in_its_record(once: Path) -> None:
    settings = json.loads(open_record(once).attrs["settings"])
    assert settings["command"] == "measure"
    assert settings["target"].endswith("their_script.py:build")
    assert Path(settings["target"].rpartition(":")[0]).is_absolute()


def test_two_processes_of_torchrun_write_one_record(target: str, once: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "tangentlens"]
    done = subprocess.run([*command, "measure", target, "--record", "runs/joined"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("runs/joined/report.html") == 1
    alone, together = (open_record(run)["tangent/eigenvalues"].values for run in (once, "runs/joined"))
    assert np.abs(alone - together).max() <= 1e-6 * alone.max()  # float32: eigenvalues err on the scale of the largest
