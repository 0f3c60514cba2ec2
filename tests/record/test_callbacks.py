"""Recorders inside Lightning and the Hugging Face Trainer, and numbers sent on to dashboards, with the real things."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tangentlens.record import every, open_record
from tangentlens.record.instruments import training
from tests.record.runs import NORM, identical, recorded, small_probe, weights

os.environ.setdefault("WANDB_MODE", "offline")


def lightning_run(
    folder: Path, callback=None, fail_at: int | None = None, names=("train/loss",), optimisers: int = 1, fits: int = 1
):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = optimisers == 1
            self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch, index: int) -> torch.Tensor:
            if self.global_step == fail_at:
                raise RuntimeError("broken batch")
            loss = functional.cross_entropy(self(batch[0]), batch[1])
            for name in names:
                self.log(name, loss.detach())
            if optimisers > 1:
                self.manual_backward(loss)
                for optimiser in self.optimizers():
                    optimiser.step()
                    optimiser.zero_grad()
            return loss

        def configure_optimizers(self) -> list[torch.optim.Optimizer]:
            return [torch.optim.Adam(self.parameters(), lr=0.01) for _ in range(optimisers)]

    lightning.seed_everything(0)
    model = Module()
    data = torch.utils.data.TensorDataset(*small_probe(12))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=4, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu", callbacks=[callback] if callback else [], accumulate_grad_batches=1, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(model, loader)
    for _ in range(fits - 1):
        trainer.fit_loop.max_epochs += 1
        trainer.save_checkpoint(folder / "between.ckpt")
        trainer.fit(model, loader)
    return model


@pytest.mark.filterwarnings("ignore")
def test_lightning_records_its_steps_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    from tangentlens.record.callbacks.lightning import LightningRecorder

    plain = lightning_run(tmp_path)
    callback = LightningRecorder(tmp_path / "run", small_probe(), measures=[*training(), NORM], schedule=every(3))
    model = lightning_run(tmp_path, callback)
    assert identical(weights(plain), weights(model)) and all(module.training for module in model.modules())
    tree = open_record(tmp_path / "run")
    assert tree["mine/step"].values.tolist() == [0, 3, 6, 9, 12] and tree.attrs["state"] == "finished"
    assert np.isfinite(tree["training/train_loss"].values[1:]).all()


@pytest.mark.filterwarnings("ignore")
def test_lightning_spaces_steps_to_its_own_end_and_marks_a_failed_run(tmp_path: Path) -> None:
    from tangentlens.record.callbacks.lightning import LightningRecorder

    callback = LightningRecorder(tmp_path / "run", small_probe(), measures=[NORM], model=lambda module: module.net)
    with pytest.raises(RuntimeError, match="broken batch"):
        lightning_run(tmp_path, callback, fail_at=5)
    tree = open_record(tmp_path / "run")
    assert tree.attrs["schedule"] == "13 log-spaced steps to 12" and tree.attrs["model"] == "Sequential"
    assert tree.attrs["state"] == "failed" and tree["mine/step"].values.tolist() == [0, 1, 2, 3, 4, 5]


INSTRUMENTS = {"training", "tangent", "forward", "ansatz"}


@pytest.mark.filterwarnings("ignore")
def test_lightning_ends_with_the_same_weights_under_all_default_instruments(tmp_path: Path) -> None:
    from tangentlens.record.callbacks.lightning import LightningRecorder

    callback = LightningRecorder(tmp_path / "run", small_probe(20), schedule=every(12), budget=100.0)
    assert identical(weights(lightning_run(tmp_path)), weights(lightning_run(tmp_path, callback)))
    assert set(open_record(tmp_path / "run").children) >= INSTRUMENTS


@pytest.mark.filterwarnings("ignore")
def test_lightning_may_log_under_any_name(tmp_path: Path) -> None:
    from tangentlens.record.callbacks.lightning import LightningRecorder

    lightning_run(tmp_path, LightningRecorder(tmp_path / "run", small_probe(), measures=training(), schedule=every(6)),
                  names=("step", "probe_loss", "layer"))  # fmt: skip
    data = open_record(tmp_path / "run")["training"]
    assert data["step"].values.tolist() == [0, 6, 12] and np.isfinite(data["probe_loss"].values).all()
    assert np.isfinite(data["logged_step"].values[1:]).all() and "logged_layer" in data


@pytest.mark.filterwarnings("ignore")
def test_lightning_fits_twice_into_one_run(tmp_path: Path) -> None:
    from tangentlens.record.callbacks.lightning import LightningRecorder

    callback = LightningRecorder(tmp_path / "run", small_probe(), measures=training(), schedule=every(3))
    lightning_run(tmp_path, callback, fits=2)
    tree = open_record(tmp_path / "run")
    assert tree["training/step"].values.tolist() == [0, 3, 6, 9, 12, 15] and tree.attrs["state"] == "finished"


@pytest.mark.filterwarnings("ignore")
def test_lightning_with_two_optimisers_is_recorded_to_its_end(tmp_path: Path) -> None:
    from tangentlens.record.callbacks.lightning import LightningRecorder

    lightning_run(tmp_path, LightningRecorder(tmp_path / "run", small_probe(), measures=[NORM]), optimisers=2)
    tree = open_record(tmp_path / "run")
    assert tree.attrs["schedule"] == "25 log-spaced steps to 24"
    assert tree["mine/step"].values.tolist() == list(range(0, 25, 2))


def hugging_face_run(folder: Path, callback=None) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2
    )
    transformers.set_seed(0)
    model = transformers.BertForSequenceClassification(config)
    rows = [{"input_ids": torch.randint(20, (5,)), "labels": torch.tensor(i % 2)} for i in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), max_steps=6, per_device_train_batch_size=4, logging_steps=2, save_strategy="no",
        report_to=[], disable_tqdm=True, use_cpu=True, seed=7,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[callback] if callback else [])
    trainer.train()
    return model


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_records_its_steps_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    from tangentlens.record.callbacks.huggingface import HuggingFaceRecorder

    plain = hugging_face_run(tmp_path)
    torch.manual_seed(1)
    probe = {"input_ids": torch.randint(20, (6, 5)), "attention_mask": torch.ones(6, 5, dtype=torch.long),
             "labels": torch.tensor([0, 1] * 3)}  # fmt: skip
    callback = HuggingFaceRecorder(tmp_path / "run", probe, measures=[*training(), NORM])
    model = hugging_face_run(tmp_path, callback)
    assert identical(weights(plain), weights(model))
    tree = open_record(tmp_path / "run")
    assert tree["mine/step"].values.tolist() == list(range(7)) and tree.attrs["seed"] == 7
    assert np.isfinite(tree["training/probe_loss"].values).all() and np.isfinite(tree["training/loss"].values[3:]).all()


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_ends_with_the_same_weights_under_all_default_instruments(tmp_path: Path) -> None:
    from tangentlens.record.callbacks.huggingface import HuggingFaceRecorder

    generator = torch.Generator().manual_seed(1)
    probe = {"input_ids": torch.randint(20, (20, 5), generator=generator), "labels": torch.tensor([0, 1] * 10)}
    callback = HuggingFaceRecorder(tmp_path / "run", probe, schedule=every(6), budget=100.0)
    plain, model = hugging_face_run(tmp_path), hugging_face_run(tmp_path, callback)
    assert identical(weights(plain), weights(model))
    assert set(open_record(tmp_path / "run").children) >= {"training", "tangent", "ansatz"}


def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from tangentlens.record.callbacks.scalars import tensorboard

    recorded(tmp_path / "run", steps=3, mirrors=[tensorboard(tmp_path / "logs")])
    seen = EventAccumulator(str(tmp_path / "logs"))
    seen.Reload()
    norms = open_record(tmp_path / "run")["mine/norm"].values
    shown = seen.Scalars("tangentlens/mine/norm")
    assert [event.step for event in shown] == [0, 1, 2] and np.allclose([event.value for event in shown], norms)


def test_weights_and_biases_gets_every_number_on_an_axis_of_its_own() -> None:
    from tangentlens.record.callbacks.scalars import weights_and_biases

    class Run:
        """What is used of a W&B run."""

        def __init__(self) -> None:
            self.logged: list[dict] = []
            self.axes: dict[str, str | None] = {}

        def define_metric(self, name: str, step_metric: str | None = None) -> None:
            self.axes[name] = step_metric

        def log(self, values: dict) -> None:
            self.logged.append(values)

    run = Run()
    weights_and_biases(run)(4, {"mine/norm": 2.0})
    assert run.logged == [{"tangentlens/step": 4, "tangentlens/mine/norm": 2.0}]
    assert run.axes == {"tangentlens/step": None, "tangentlens/*": "tangentlens/step"}


def test_weights_and_biases_takes_the_real_run(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    from tangentlens.record.callbacks.scalars import weights_and_biases

    with pytest.raises(ValueError, match="expected a W&B run, got none"):
        weights_and_biases()
    run = wandb.init(mode="disabled", dir=str(tmp_path))
    recorded(tmp_path / "run", steps=2, mirrors=[weights_and_biases()])
    run.finish()
