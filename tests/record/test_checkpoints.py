"""Checkpoints of other people's scripts are found, ordered and loaded, and never executed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import nn

from tangentlens.errors import BadInput
from tangentlens.kernels.weights import load_into
from tangentlens.record.checkpoints import checkpoints, step_of


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


class Touches:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


def saved(folder: Path, *names: str, state: object | None = None) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        torch.save(network().state_dict() if state is None else state, folder / name)


def test_a_folder_is_followed_in_order_of_step(tmp_path: Path) -> None:
    saved(tmp_path, "step_100.pt", "step_9.pt", "step_20.pt", "optimizer_9.pt")
    found = checkpoints([tmp_path])
    assert list(found) == [9, 20, 100]
    assert found[9].name == "step_9.pt"


def test_a_glob_and_single_files_are_followed_together(tmp_path: Path) -> None:
    saved(tmp_path, "a-1.pt", "a-2.pt", "b-3.pt")
    assert list(checkpoints([tmp_path / "b-3.pt", tmp_path / "a-*.pt"])) == [1, 2, 3]


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("epoch=3-step=1200.ckpt", 1200),
        ("step=1200-epoch=3.ckpt", 1200),
        ("checkpoint-500/model.safetensors", 500),
        ("run7/model_0040.pt", 40),
        ("ckpt_v2_step30_acc0.pt", 30),
        ("final.pt", None),
    ],
)
def test_a_step_is_read_from_a_name(path: str, step: int | None) -> None:
    assert step_of(Path(path)) == step


def test_a_pattern_reads_the_step_where_the_name_misleads() -> None:
    assert step_of(Path("t40_width512.pt"), r"t(\d+)_") == 40
    with pytest.raises(BadInput, match="finds no number"):
        step_of(Path("final.pt"), r"t(\d+)_")


def test_a_checkpoint_without_a_step_is_refused_among_others(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    saved(folder, "first.pt", "last.pt")
    with pytest.raises(BadInput, match="--step-pattern"):
        checkpoints([folder])


def test_two_checkpoints_of_one_step_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "a_5.pt", "b_5.pt")
    with pytest.raises(BadInput, match="both read as step 5"):
        checkpoints([tmp_path])


def test_an_empty_folder_and_a_missing_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no checkpoint among"):
        checkpoints([tmp_path])
    with pytest.raises(BadInput, match="no file, folder or glob match"):
        checkpoints([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3, "optimizer": {"lr": 0.1}},
        lambda state: {"model_state_dict": state},
        lambda state: {"model": {f"module.{name}": value for name, value in state.items()}},
        lambda state: {"state_dict": {f"model._orig_mod.{name}": value for name, value in state.items()}},
    ],
    ids=["bare", "state_dict", "model_state_dict", "distributed", "lightning and compiled"],
)
def test_weights_are_found_where_training_scripts_put_them(tmp_path: Path, wrapped) -> None:
    theirs, ours = network(), network()
    saved(tmp_path, "step_1.pt", state=wrapped(theirs.state_dict()))
    load_into(ours, tmp_path / "step_1.pt")
    assert all(torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters()))


def test_safetensors_are_read_and_a_tied_name_may_be_left_out(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = Tied()
    weight = torch.randn(5, 3)
    save_file({"embedding.weight": weight}, tmp_path / "step_1.safetensors")
    load_into(model, tmp_path / "step_1.safetensors")
    assert torch.equal(model.head.weight, weight)


def test_a_checkpoint_that_would_run_code_is_refused_and_runs_none(tmp_path: Path) -> None:
    trap = tmp_path / "was_executed"
    saved(tmp_path, "step_1.pt", state={"state_dict": network().state_dict(), "extra": Touches(trap)})
    with pytest.raises(BadInput, match="could run their code"):
        load_into(network(), tmp_path / "step_1.pt")
    assert not trap.exists()


def test_weights_of_another_model_are_refused_and_leave_the_model_alone(tmp_path: Path) -> None:
    model = network()
    before = [parameter.clone() for parameter in model.parameters()]
    saved(tmp_path, "step_1.pt", state=nn.Linear(3, 4).state_dict())
    saved(tmp_path, "step_2.pt", state=nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).state_dict())
    with pytest.raises(BadInput, match="it lacks 0.weight"):
        load_into(model, tmp_path / "step_1.pt")
    with pytest.raises(BadInput, match=r"0.weight has shape \(5, 3\) there and \(4, 3\)"):
        load_into(model, tmp_path / "step_2.pt")
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("step_1.pt", lambda whole: b"not a checkpoint"),
        ("step_1.pt", lambda whole: whole[: len(whole) // 2]),
        ("step_1.pt", lambda whole: b""),
        ("step_1.safetensors", lambda whole: b"short"),
    ],
    ids=["something else", "cut off", "empty", "safetensors"],
)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, name: str, content) -> None:
    saved(tmp_path, "whole.pt", state=network().state_dict())
    (tmp_path / name).write_bytes(content((tmp_path / "whole.pt").read_bytes()))
    with pytest.raises(BadInput, match=f"{name} should be a checkpoint, got a damaged .*; copy or save it again"):
        load_into(network(), tmp_path / name)


def test_a_checkpoint_without_weights_is_refused_by_what_it_holds(tmp_path: Path) -> None:
    saved(tmp_path, "step_2.pt", state={"history": [1, 2]})
    with pytest.raises(BadInput, match="it holds the keys history"):
        load_into(network(), tmp_path / "step_2.pt")


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(BadInput, match=r"--step-pattern is a regular expression with one group, got '\(' "):
        step_of(Path("final_3.pt"), "(")


NO_CHECKPOINTS = [b"bad\n", b"hello world\n", b'{"a": 1}', b"<html>", b"", b"PK", b"]", b"(", b"0", b"e", b"K",
                  b"\x89PNG\r\n\x1a\n", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n"]  # fmt: skip


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_files_of_any_other_kind_are_refused_in_one_sentence(tmp_path: Path, suffix: str) -> None:
    draw = random.Random(0)
    noise = [bytes(draw.randrange(*kind) for _ in range(draw.randrange(1, 60))) for kind in ((256,), (32, 127)) * 60]
    file = tmp_path / f"step_1{suffix}"
    for content in [*NO_CHECKPOINTS, *noise]:
        file.write_bytes(content)
        with pytest.raises(BadInput, match="step_1"):
            load_into(network(), file)


def test_weights_beside_a_wrapped_model_are_no_part_of_it(tmp_path: Path) -> None:
    saved, loaded = network(), network()
    state = {f"model.{name}": value + 1 for name, value in saved.state_dict().items()}
    torch.save({"state_dict": {**state, "criterion.weight": torch.ones(3)}}, tmp_path / "step_1.ckpt")
    load_into(loaded, tmp_path / "step_1.ckpt")
    assert all(torch.equal(loaded.state_dict()[name], value + 1) for name, value in saved.state_dict().items())
