"""Whatever is handed over wrongly on the command line ends in one message, exit status 2, and nothing written."""

from __future__ import annotations

from pathlib import Path

import icechunk
import pytest
import torch
from torch import nn

from tangentlens.cli import main
from tangentlens.record import Recorder
from tests.record.runs import NORM, small_model, small_probe

TARGETS = """
import torch
from torch import nn

class Noisy(nn.Linear):
    def forward(self, x): return super().forward(x) + torch.rand(1)

class Coupled(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)
    def forward(self, x): return self.head(self.norm(x))

class TwoThings(nn.Linear):
    def forward(self, x): return {"first": super().forward(x), "second": 3}

x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
def good(): return nn.Linear(4, 2), x
def too_few_targets(): return nn.Linear(4, 2), (x, torch.zeros(9, dtype=torch.long))
def parts_that_differ(): return nn.Bilinear(4, 4, 2), ((x, x[:9]), None)
def another_width(): return nn.Linear(5, 2), x
def no_such_class(): return nn.Linear(4, 2), (x, torch.full((12,), 7))
def frozen(): return nn.Linear(4, 2).requires_grad_(False), x
def noisy(): return Noisy(4, 2), x
def coupled(): return Coupled(), x
def two_things(): return TwoThings(4, 2), x
def not_a_number(): return nn.Linear(4, 2), torch.where(torch.arange(12)[:, None] == 7, torch.nan, x)
def nan_at_once(): return nn.Linear(4, 2), torch.full((12, 4), torch.nan)
def names_as_targets(): return nn.Linear(4, 2), (x, "labels.txt")
def ends(): raise SystemExit(3)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(TARGETS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one message of a command that must end with exit status 2."""
    assert main(words) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message and len(message.strip().splitlines()) == 1, message
    return message


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("too_few_targets", "one row for each of the 12 examples, got (9,)"),
        ("parts_that_differ", "the same number of examples on its first axis, got inputs[0]: 12, inputs[1]: 9"),
        ("another_width", "should take the inputs beside it, got RuntimeError: mat1 and mat2 shapes"),
        ("no_such_class", "classes from 0 to 1, one for each output, got 7 to 7"),
        ("frozen", "needs trainable parameters, got Linear with none"),
        ("noisy", "two runs on the same inputs must agree, got outputs that differ"),
        ("coupled", "needs batch norm with running statistics, got norm (BatchNorm1d)"),
        ("two_things", "must be a tensor (or a Hugging Face output with logits), got dict"),
        ("not_a_number", "outputs must be finite, got nan at example 7, output 0"),
        ("nan_at_once", "outputs must be finite, got nan at example 0, output 0"),
        ("names_as_targets", "one row for each of the 12 examples, got str"),
        ("ends", "failed at line 30: SystemExit: 3; it is called without arguments"),
    ],
)
def test_a_target_that_cannot_be_measured_is_refused_before_anything_is_written(
    here: Path, function: str, says: str, capsys
) -> None:
    assert says in said(["measure", f"mine.py:{function}", "--record", "run"], capsys)
    assert not (here / "run").exists()


@pytest.mark.parametrize("device", ["cuda:77", "banana"])
def test_a_device_that_is_not_there_is_refused(here: Path, device: str, capsys) -> None:
    message = said(["check", "mine.py:good", "--device", device], capsys)
    assert f"got {device!r}" in message and "tangentlens doctor" in message


def test_a_study_is_not_begun_on_a_device_that_is_not_there(here: Path, capsys) -> None:
    message = said(["reproduce", "nam2024", "--quick", "--device", "banana", "--record", "out"], capsys)
    assert "got 'banana'" in message and "tangentlens doctor" in message and not (here / "out").exists()


@pytest.mark.parametrize("command", ["report", "watch", "export", "resume"])
def test_a_folder_or_file_that_is_no_run_is_refused(here: Path, command: str, capsys) -> None:
    (here / "notes.txt").write_text("no run")
    (here / "empty").mkdir()
    for place in (".", "notes.txt", "empty"):
        assert "give the folder" in (message := said([command, place], capsys)) or "choose another" in message
    assert sorted(path.name for path in here.iterdir()) == ["empty", "mine.py", "notes.txt"]


def test_a_folder_of_other_files_is_not_written_into(here: Path, capsys) -> None:
    assert "got a folder of other files" in said(["measure", "mine.py:good", "--record", "."], capsys)


def test_a_run_of_another_model_is_not_gone_on_with(here: Path, capsys) -> None:
    with Recorder("run", small_model(), small_probe(), [NORM]) as recorder:
        recorder.observe(0)
    message = said(["measure", "mine.py:good", "--record", "run"], capsys)
    assert "recorded with another model: expected Sequential 83" in message and "into another folder" in message


def test_checkpoints_are_not_added_to_a_run_that_another_command_made(here: Path, capsys) -> None:
    assert main(["measure", "mine.py:good", "--record", "run"]) == 0
    torch.save(nn.Linear(4, 2).state_dict(), here / "step_5.pt")
    capsys.readouterr()
    assert "one made by measure; choose another" in said(
        ["follow", "mine.py:good", "step_5.pt", "--record", "run"], capsys
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "run", "--out", "run.txt/r.html"], "cannot be written to run.txt/r.html"),
        (["export", "run", "--out", "run.txt"], "cannot be written to run.txt"),
        (["watch", "run", "--port", "99999"], "needs a free port of this machine, got 99999"),
    ],
)
def test_a_place_or_port_that_cannot_be_used_is_named(here: Path, words: list[str], says: str, capsys) -> None:
    with Recorder("run", small_model(), small_probe(), [NORM]) as recorder:
        recorder.observe(0)
    (here / "run.txt").write_text("a file")
    assert says in said(words, capsys)


@pytest.mark.parametrize("words", [["report"], ["export"], ["resume"], ["watch", "--text"]])
@pytest.mark.parametrize("part", ["manifests", "snapshots"])
def test_a_run_whose_files_are_damaged_is_not_taken_for_an_empty_one(
    here: Path, words: list[str], part: str, capsys
) -> None:
    with Recorder("run", small_model(), small_probe(), [NORM]) as recorder:
        recorder.observe(0)
    for file in (here / "run" / part).iterdir():
        file.write_bytes(file.read_bytes()[:10]) if part == "manifests" else file.unlink()
    assert "expected a run whose files are whole, got" in said([*words, "run"], capsys)


def test_a_run_that_has_not_begun_is_not_exported(here: Path, capsys) -> None:
    icechunk.Repository.create(icechunk.local_filesystem_storage("run"))
    assert "writes recorded steps, got none in run" in said(["export", "run"], capsys)
    assert sorted(path.name for path in here.iterdir()) == ["mine.py", "run"]


def test_a_folder_that_may_not_be_written_to_is_named(here: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def create(storage: icechunk.Storage) -> None:
        raise icechunk.IcechunkError(
            "  x object store error\n  | \n  | context:\n  `-> Permission denied (os error 13)\n"
        )

    monkeypatch.setattr(icechunk.Repository, "create", create)  # not by permissions, which a superuser does not have
    message = said(["measure", "mine.py:good", "--record", "run"], capsys)
    assert "may be written to, got run (Permission denied (os error 13)); choose another place" in message


@pytest.mark.parametrize("flag", ["--examples", "--repeats"])
def test_benchmarks_of_nothing_are_refused(flag: str, capsys) -> None:
    assert f"{flag} is at least 1, got 0" in said(["bench", "mlp", flag, "0"], capsys)
