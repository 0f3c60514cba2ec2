from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tangentlens.studies import StudyOptions, datasets
from tangentlens.studies.beaglehole2024 import whole
from tangentlens.studies.beaglehole2024.image_claims import depth_verdicts, limited_verdicts
from tangentlens.studies.beaglehole2024.images import Task, Training, image_task, mlp_curves, vgg_curves
from tangentlens.studies.beaglehole2024.networks import VGG_11, relu_network, vgg
from tangentlens.studies.beaglehole2024.records import curves_record, transformer_record
from tangentlens.studies.beaglehole2024.sizes import FULL, QUICK
from tangentlens.studies.beaglehole2024.transformer import Shape, transformer_run


def made_task(examples: int = 48, size: int = 8, channels: int = 3, classes: int = 4) -> Task:
    labels = torch.arange(examples) % classes
    inputs = torch.randn(examples, channels, size, size) + labels[:, None, None, None]
    targets = torch.nn.functional.one_hot(labels, classes).float() - 1 / classes
    return Task(inputs, targets, inputs[:20], targets[:20])


def test_the_vgg_is_configuration_a_without_batch_normalisation() -> None:
    network = vgg()
    convolutions = [module for module in network if isinstance(module, torch.nn.Conv2d)]
    assert [module.out_channels for module in convolutions] == [entry for entry in VGG_11 if entry != "pool"]
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in network)
    assert convolutions[3].weight.std().item() == pytest.approx(math.sqrt(2 / (256 * 9)), rel=0.02)
    assert sum(parameter.numel() for parameter in network.parameters()) == 28_144_010  # 512-4096-4096-10 on 32 x 32
    assert vgg(narrower=8)(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_the_mlp_has_torchs_initialisation_and_no_biases() -> None:
    network = relu_network(10, width=7, hidden=3, outputs=2, scale=0.5, seed=3)
    torch.manual_seed(3)
    assert torch.equal(network[0].weight, 0.5 * torch.nn.Linear(10, 7, bias=False).weight)
    assert [parameter.shape for parameter in network.parameters()] == [(7, 10), (7, 7), (7, 7), (2, 7)]


def test_curves_follow_every_hidden_layer_from_the_shared_start() -> None:
    training = Training(0.5, epochs=3, batch=16, looks=(1,), probe=20, draws=19)
    task = made_task()
    plain = mlp_curves(task, training, 0, width=12, hidden=2)
    limits = replace(training, rate=0.05, speeds=(("0", 5.0), ("*", 0.2)))
    limited = mlp_curves(task, limits, 0, width=12, hidden=2)
    assert plain.epochs == [0, 1, 3] and plain.layers == ["0", "2"]
    assert plain.readings[0] == limited.readings[0] and plain.readings[-1] != limited.readings[-1]
    assert plain.train_error[-1] < plain.train_error[0]
    record = curves_record([plain, plain])
    assert record["centred_null"].sizes == {"seed": 2, "epoch": 3, "layer": 2}
    verdicts = depth_verdicts("mlp", "made", [plain, plain])
    verdicts += limited_verdicts("made", {"plain": [plain], "speed-limited": [limited]})
    assert [verdict.id for verdict in verdicts] == [
        "11.mlp.made.uncentred", "11.mlp.made.uncentred.chance", "11.mlp.made.centred.chance",
        "12.made.uncentred", "12.made.accuracy",
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"first_layer_rate": 0.5}, {"speeds": (("0", 5.0), ("*", 0.0))}, {"momentum": 0.9}])
def test_baselines_of_the_image_runs_train(change: dict) -> None:
    with_momentum = Training(0.02, epochs=4, batch=16, probe=10, draws=2, **change)
    curves = mlp_curves(made_task(), with_momentum, 0, width=12, hidden=2)
    assert curves.train_error[-1] < curves.train_error[0]
    if "speeds" in change:
        assert curves.readings[-1]["relative_change"][1] < 1e-3 < curves.readings[-1]["relative_change"][0]


def test_convolutions_of_the_vgg_are_read_on_patches() -> None:
    training = Training(0.01, epochs=1, batch=24, momentum=0.9, probe=4, draws=2)
    curves = vgg_curves(made_task(size=32), training, 0, narrower=32)
    assert len(curves.layers) == 8
    values = torch.tensor([look["uncentred"] for look in curves.readings])
    assert values.shape == (2, 8) and ((values > 0) & (values <= 1 + 1e-9)).all()


def test_every_head_of_the_transformer_is_read_by_itself(data_folder: Path) -> None:
    shape = Shape(width=16, heads=2, blocks=1, context=8, steps=30, batch=16, probe=6, draws=2, rate=1e-2)
    run = transformer_run(0, data_folder, shape=shape)
    assert "blocks.0.packed key 1" in run.parts and "blocks.0.down" in run.parts and len(run.parts) == 9
    assert run.loss[1] < run.loss[0]
    assert run.parts["blocks.0.packed query 0"]["uncentred_null"][0] < 1
    assert transformer_record([run])["uncentred"].sizes == {"seed": 1, "layer": 9, "look": 2}


def test_images_are_standardised_by_channel_and_targets_centred(data_folder: Path) -> None:
    task = image_task("cifar10", 200, 50, data_folder)
    assert task.inputs.shape == (200, 3, 32, 32) and task.test_targets.shape == (50, 10)
    assert torch.allclose(task.inputs.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(task.inputs.std(dim=(0, 2, 3)), torch.ones(3), atol=1e-5)
    assert torch.allclose(task.targets.sum(1), torch.zeros(200), atol=1e-6) and task.targets.max() == pytest.approx(0.9)


def test_svhn_runs_once_the_users_copy_is_there(tmp_path: Path) -> None:
    from scipy.io import savemat

    (tmp_path / "svhn").mkdir()
    for split, count in (("train", 40), ("test", 20)):
        labels = (np.arange(count) % 10 + 1)[:, None].astype(np.uint8)  # 10 stands for zero
        pixels = np.random.default_rng(0).integers(0, 200, (32, 32, 3, count), dtype=np.uint8) + labels.T * 5
        savemat(tmp_path / "svhn" / f"{split}_32x32.mat", {"X": pixels.astype(np.uint8), "y": labels})
    sizes = replace(QUICK, mlp_width=16, mlp_epochs={"svhn": 1}, probe=10, draws=2)
    verdicts, records, notes = whole._images(StudyOptions(seeds=1, data=tmp_path), sizes, "svhn")
    assert {verdict.id for verdict in verdicts} >= {"11.mlp.svhn.uncentred", "12.svhn.accuracy"}
    assert set(records) == {f"svhn/mlp/{name}" for name in sizes.mlp("svhn")} and notes == []


def test_celeba_runs_once_the_users_copy_is_there(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    faces = tmp_path / "celeba" / "img_align_celeba"
    faces.mkdir(parents=True)
    names = [f"{number:06d}.jpg" for number in range(12)]
    for number, name in enumerate(names):
        image.new("RGB", (178, 218), (20 * number, 100, 255 - 20 * number)).save(faces / name)
    smiles = "\n".join(f"{name} {1 if number % 2 else -1} -1" for number, name in enumerate(names))
    (tmp_path / "celeba" / "list_attr_celeba.txt").write_text(f"12\nSmiling Male\n{smiles}\n")
    splits = "\n".join(f"{name} {0 if number < 8 else 2}" for number, name in enumerate(names))
    (tmp_path / "celeba" / "list_eval_partition.txt").write_text(splits + "\n")
    sizes = replace(QUICK, mlp_width=16, mlp_epochs={"celeba": 1}, probe=4, draws=2)
    verdicts, records, notes = whole._images(StudyOptions(seeds=1, data=tmp_path), sizes, "celeba")
    assert "12.celeba.uncentred" in {verdict.id for verdict in verdicts} and notes == []
    assert records["celeba/mlp/plain"].sizes["layer"] == 5


def test_full_sizes_are_those_of_the_released_code() -> None:
    plain = FULL.mlp("mnist")["plain"]
    assert (plain.rate, plain.epochs, plain.batch, plain.momentum) == (10.0, 50, 128, 0.0)
    assert (FULL.vgg.rate, FULL.vgg.epochs, FULL.vgg.batch, FULL.vgg.momentum) == (1.0, 50, 256, 0.9)
    assert FULL.mlp("cifar10")["plain"].epochs == 150 and set(FULL.images.values()) == {50_000}


def test_datasets_the_study_names_can_be_read() -> None:
    assert {"mnist", "cifar10", "svhn", "celeba"} <= set(datasets.__all__)
