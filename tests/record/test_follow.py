"""Checkpoints of somebody else's training become a run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tangentlens.errors import BadInput
from tangentlens.record import follow_checkpoints, open_record
from tangentlens.record.instruments import training
from tests.record.runs import NORM, small_model, small_probe, trained, weights


def checkpointed(folder: Path, steps: tuple[int, ...] = (0, 5, 10, 100)) -> list[torch.Tensor]:
    """As a training script with DDP leaves them; the weights of the last."""
    folder.mkdir()
    for step in steps:
        model = trained(small_model(), None, range(step + 1))
        state = {f"module.{name}": value for name, value in model.state_dict().items()}
        torch.save({"model": state, "optimizer": {}, "epoch": step}, folder / f"step_{step}.pt")
    return weights(model)


def test_a_folder_of_checkpoints_becomes_a_run_in_order_of_their_steps(tmp_path: Path) -> None:
    last = checkpointed(tmp_path / "checkpoints")
    model = small_model(seed=5)
    follow_checkpoints(tmp_path / "run", model, small_probe(), tmp_path / "checkpoints", measures=[*training(), NORM])
    tree = open_record(tmp_path / "run")
    assert tree["mine/step"].values.tolist() == [0, 5, 10, 100] and tree.attrs["state"] == "finished"
    assert tree["training/parameter_distance"].values[0] == 0 < tree["training/parameter_distance"].values[1]
    assert tree["mine/norm"].values[-1] == last[0].norm()


def test_following_again_measures_only_what_is_new(tmp_path: Path) -> None:
    checkpointed(tmp_path / "checkpoints", (0, 5))
    asked: list[int] = []
    measure = type(NORM)("mine/norm", (), lambda snapshot: asked.append(snapshot.step) or 1.0)
    for _ in range(2):
        follow_checkpoints(tmp_path / "run", small_model(), small_probe(), tmp_path / "checkpoints", measures=[measure])
    torch.save(small_model().state_dict(), tmp_path / "checkpoints" / "step_7.pt")
    follow_checkpoints(tmp_path / "run", small_model(), small_probe(), tmp_path / "checkpoints", measures=[measure])
    assert asked == [0, 5, 7] and open_record(tmp_path / "run")["mine/step"].values.tolist() == [0, 5, 7]


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"model": small_model().state_dict(), "extra": Trap()}, tmp_path / "step_1.pt")
    with pytest.raises(BadInput, match="should hold tensors only, got Python objects .* could run their code"):
        follow_checkpoints(tmp_path / "run", small_model(), small_probe(), tmp_path / "step_1.pt", measures=[NORM])
    assert not (tmp_path / "sprung").exists() and not (tmp_path / "run").exists()


def test_without_measures_all_that_apply_are_taken_at_every_checkpoint(tmp_path: Path) -> None:
    checkpointed(tmp_path / "checkpoints")
    follow_checkpoints(tmp_path / "run", small_model(), small_probe(), tmp_path / "checkpoints")
    tree = open_record(tmp_path / "run")
    assert {"training", "tangent", "forward", "ansatz"} <= set(tree.children)
    assert tree.attrs["budget"] == "", "no training waits, so no bound on time leaves anything out"
    for name in ("tangent/trace", "forward/effective_dimension", "ansatz/uncentred"):
        assert np.isfinite(tree[name].values).all()


def test_targets_that_are_no_tensor_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    checkpointed(tmp_path / "checkpoints", (0,))
    with pytest.raises(BadInput, match="one row for each of the 10 examples, got list"):
        follow_checkpoints(tmp_path / "run", small_model(), (small_probe()[0], [0] * 10), tmp_path / "checkpoints")
    assert not (tmp_path / "run").exists()
