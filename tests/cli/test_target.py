"""A target is a function in a file that returns a model and its probe."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tangentlens.cli import main
from tangentlens.cli.target import target
from tangentlens.errors import BadInput

FILE = """
import torch
from beside_it import WIDTH

model = torch.nn.Linear(WIDTH, 2)
def bare(): return model, torch.ones(5, WIDTH)
def with_targets(): return model, (torch.ones(5, WIDTH), torch.zeros(5))
def with_dict(): return model, {"input": torch.ones(5, WIDTH)}
def of_a_pair(): return torch.nn.Bilinear(WIDTH, WIDTH, 2), ((torch.ones(5, WIDTH), torch.ones(5, WIDTH)), None)
def with_outputs(): return model, torch.ones(5, WIDTH), lambda out: out[:, :1]
def three(): return model, torch.ones(5, WIDTH), "logits"
def alone(): return model
def triple(): return model, (torch.ones(5), torch.ones(5), torch.ones(5))
def no_model(): return "model", torch.ones(1)
def no_inputs(): return model, "inputs"
def breaks():
    raise KeyError("weights.pt")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside_it.py").write_text("WIDTH = 3\n")
    path = tmp_path / "my_training_script.py"
    path.write_text(FILE)
    return path


def test_a_target_may_import_what_lies_beside_it(file: Path) -> None:
    asked = target(f"{file}:bare")
    assert asked.name == "bare"
    assert asked.inputs.shape == (5, 3)
    assert asked.targets is None


def test_a_pair_is_inputs_and_targets(file: Path) -> None:
    assert target(f"{file}:with_targets").targets.shape == (5,)


def test_inputs_may_be_what_the_model_takes(file: Path) -> None:
    assert set(target(f"{file}:with_dict").inputs) == {"input"}
    assert len(target(f"{file}:of_a_pair").inputs) == 2


def test_labels_of_a_dict_are_its_targets(tmp_path: Path) -> None:
    path = tmp_path / "hugging_face.py"
    path.write_text(
        "import torch\n"
        "def build(): return torch.nn.Linear(3, 2), {'input': torch.ones(5, 3), 'labels': torch.zeros(5)}\n"
    )
    asked = target(f"{path}:build")
    assert set(asked.inputs) == {"input"}
    assert asked.targets.shape == (5,)


def test_a_target_may_say_what_to_take_of_the_output(file: Path) -> None:
    outputs = target(f"{file}:with_outputs").outputs
    assert outputs is not None
    assert outputs(torch.ones(4, 2)).shape == (4, 1)


def test_model_and_probe_move_to_the_device_asked_for(file: Path) -> None:
    asked = target(f"{file}:with_dict", "meta")
    assert asked.model.weight.is_meta
    assert asked.inputs["input"].is_meta


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("missing", "has no function 'missing'; it has bare, with_targets"),
        ("alone", "got Linear"),
        ("three", "got str as outputs"),
        ("triple", "got a tuple of 3 as inputs"),
        ("no_model", "got str as the model"),
        ("no_inputs", "got str as inputs"),
        ("breaks", "failed at line 17: KeyError: 'weights.pt'"),
    ],
)
def test_a_target_that_cannot_be_used_says_why(file: Path, function: str, says: str) -> None:
    with pytest.raises(BadInput) as error:
        target(f"{file}:{function}")
    assert says in str(error.value)


@pytest.mark.parametrize("words", ["model", "model.txt:build", "model.py:", "model.py:not-a-name"])
def test_a_target_is_a_file_and_a_function(words: str) -> None:
    with pytest.raises(BadInput, match=r"a target is FILE\.py:FUNCTION, got"):
        target(words)


def test_a_missing_file_is_exit_status_2(capsys) -> None:
    assert main(["check", "nowhere.py:build"]) == 2
    assert "there is no file nowhere.py" in capsys.readouterr().err


def test_a_file_that_cannot_be_imported_says_where(tmp_path: Path) -> None:
    path = tmp_path / "half_written.py"
    path.write_text("import torch\nimport no_such_package_at_all\n")
    with pytest.raises(BadInput, match="got ModuleNotFoundError: .* at line 2; mend it there"):
        target(f"{path}:build")


def test_a_script_that_ends_when_it_is_imported_is_no_end_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import sys\nsys.exit('usage: script.py --data FOLDER')\n")
    with pytest.raises(
        BadInput, match="got SystemExit: usage: .*; let what it does as a script stand below: if __name"
    ):
        target(f"{path}:build")


def test_a_target_is_measured_in_eval_mode(file: Path) -> None:
    assert not target(f"{file}:bare").model.training
