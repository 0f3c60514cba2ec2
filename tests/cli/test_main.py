"""Words on the command line become an exit status and at most one message."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest
import torch

from tangentlens.cli import main
from tangentlens.cli.commands import COMMANDS
from tangentlens.errors import BadInput, ClaimOutsideTolerance, RefusedForMemory


@pytest.fixture
def failing_doctor(monkeypatch: pytest.MonkeyPatch):
    """Let the doctor command raise a given error."""

    def fail_with(error: BaseException) -> None:
        module = ModuleType("tangentlens.cli.doctor")

        def run(settings: object) -> int:
            raise error

        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tangentlens.cli.doctor", module)

    return fail_with


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_given_without_loading_torch(words: list[str]) -> None:
    code = (
        "import sys\nfrom tangentlens.cli import main\n"
        f"try: main({words!r})\nexcept SystemExit as end: assert end.code == 0, end.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage: tangentlens" in done.stdout


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadInput("expected this"), 2),
        (ValueError("expected this"), 2),
        (FileNotFoundError("expected this"), 2),
        (RefusedForMemory("expected this"), 3),
        (MemoryError("expected this"), 3),
        (ClaimOutsideTolerance("expected this"), 4),
    ],
)
def test_a_foreseen_error_is_one_line_and_its_exit_status(failing_doctor, capsys, error, status) -> None:
    failing_doctor(error)
    assert main(["doctor"]) == status
    assert capsys.readouterr().err == "tangentlens doctor: expected this\n"


def test_running_out_of_memory_is_exit_status_3(failing_doctor, capsys) -> None:
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**48)
    failing_doctor(error.value)
    assert main(["doctor"]) == 3
    assert "Traceback" not in capsys.readouterr().err


def test_a_traceback_is_shown_when_asked_for(failing_doctor, capsys) -> None:
    failing_doctor(BadInput("expected this"))
    assert main(["doctor", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_error_nobody_foresaw_keeps_its_traceback(failing_doctor, capsys) -> None:
    failing_doctor(ZeroDivisionError("a bug"))
    assert main(["doctor"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["chek"], ["check"], ["doctor", "--no-such-flag"], ["watch", "run", "--port", "x"]])
def test_wrong_words_end_with_status_2_and_help(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "--help" in capsys.readouterr().err


def test_the_module_runs_as_the_command_does() -> None:
    done = subprocess.run([sys.executable, "-m", "tangentlens", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "usage: tangentlens" in done.stdout


def test_doctor_prints_versions_and_devices(capsys) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "torch" in shown
    assert "GiB free" in shown


def test_doctor_prints_what_starting_costs(capsys) -> None:
    assert main(["doctor"]) == 0
    times = [line for line in capsys.readouterr().out.splitlines() if line.endswith("s of processor time")]
    assert [line.split("  ")[0] for line in times] == ["import tangentlens", "tangentlens --help"]
    assert all(float(line.split()[-5]) >= 0 for line in times)  # how much decides nothing
