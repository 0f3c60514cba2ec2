"""The setting of the released code on images: an MLP and a VGG, every hidden layer followed over training.

centred_NFA (commit d06e9aa): pixels standardised by channel with the training set's moments, labels one-hot minus 1/c,
mean squared error, SGD with a fresh optimiser every epoch (which resets momentum), epoch 0 at rate 1e-4 and called the
start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from tangentlens.kernels import layer_moments
from tangentlens.measures.alignment import Centering
from tangentlens.measures.alignment_readings import ansatz_readings
from tangentlens.optimizers import SpeedLimited
from tangentlens.studies.beaglehole2024.networks import relu_network, vgg
from tangentlens.studies.datasets import Images, celeba, cifar10, mnist, svhn

FIRST_RATE = 1e-4
READERS: dict[str, Callable[[str, Path | None], Images]] = {
    "mnist": mnist,  # type: ignore[dict-item]
    "cifar10": cifar10,  # type: ignore[dict-item]
    "svhn": svhn,  # type: ignore[dict-item]
    "celeba": lambda split, folder: celeba("Smiling", split, folder, size=32),  # type: ignore[arg-type]
}
MLP_RATES = {"mnist": 10.0, "cifar10": 2.0, "svhn": 2.0, "celeba": 2.0}
"""Learning rates of the released code, times classes / 10; CelebA is not in it, and takes the commonest."""


@dataclass(frozen=True)
class Task:
    """Standardised images and centred one-hot targets."""

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


@dataclass(frozen=True)
class Training:
    """How to train and how often to look: the sizes of the released code unless said otherwise."""

    rate: float
    epochs: int
    batch: int = 128
    momentum: float = 0.0
    speeds: tuple[tuple[str, float], ...] = ()
    eps: float = 0.1
    first_layer_rate: float | None = None
    looks: Sequence[int] = ()
    probe: int | None = None
    draws: int = 39
    centering: Centering = "entries"


@dataclass
class Curves:
    """Readings of every hidden layer by epoch looked at, and errors of the whole network."""

    layers: list[str]
    epochs: list[int] = field(default_factory=list)
    readings: list[dict[str, list[float]]] = field(default_factory=list)
    train_error: list[float] = field(default_factory=list)
    test_error: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)

    def change(self, name: str) -> list[float]:
        """A reading at the end minus at the start, layer by layer."""
        return [end - start for start, end in zip(self.readings[0][name], self.readings[-1][name])]


def image_task(name: str, examples: int, tests: int, folder: Path | None) -> Task:
    """The first images of a dataset, prepared as the released code prepares them."""
    train = READERS[name]("train", folder).first(examples)
    test = READERS[name]("test", folder).first(tests)
    mean = train.inputs.mean(dim=(0, 2, 3), keepdim=True)
    deviation = train.inputs.std(dim=(0, 2, 3), keepdim=True)
    classes = len(train.classes)
    inputs, targets = zip(
        *(
            ((part.inputs - mean) / deviation, nn.functional.one_hot(part.labels, classes).float() - 1 / classes)
            for part in (train, test)
        )
    )
    return Task(inputs[0], targets[0], inputs[1], targets[1])


def mlp_curves(task: Task, training: Training, seed: int, *, width: int = 256, hidden: int = 5) -> Curves:
    """Five hidden ReLU layers without biases on flattened images."""
    flat = Task(task.inputs.flatten(1), task.targets, task.test_inputs.flatten(1), task.test_targets)
    network = relu_network(flat.inputs.shape[1], width=width, hidden=hidden, outputs=flat.targets.shape[1], seed=seed)
    layers = [str(2 * layer) for layer in range(hidden)]
    return followed(network.to(task.inputs.device), flat, training, layers, seed)


def vgg_curves(task: Task, training: Training, seed: int, *, narrower: int = 1) -> Curves:
    """The eight convolutions of a VGG-11 without batch normalisation, read as linear maps on patches, in eval mode."""
    channels, size = task.inputs.shape[1], task.inputs.shape[2]
    network = vgg(narrower=narrower, channels=channels, size=size, outputs=task.targets.shape[1], seed=seed)
    layers = [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    return followed(network.to(task.inputs.device), task, training, layers, seed)


def followed(network: nn.Module, task: Task, training: Training, layers: list[str], seed: int) -> Curves:
    """Train, and after the epochs to be looked at read every layer against its own start."""
    curves = Curves(layers)
    probe = task.inputs[: training.probe]
    network.eval()
    initial = {name: _weight(network, name).clone() for name in layers}
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(training.epochs + 1):
        rate = (FIRST_RATE if epoch == 0 else training.rate) * task.targets.shape[1] / 10
        _train_epoch(network, task, _optimizer(network, training, rate, first=epoch == 0), training.batch, generator)
        if epoch in training.looks or epoch in (0, training.epochs):
            _look(curves, epoch, network, task, training, initial, probe)
    return curves


def _weight(network: nn.Module, layer: str) -> Tensor:
    """A linear map's weight, a convolution's as a map of patches."""
    weight = network.get_submodule(layer).weight
    assert isinstance(weight, Tensor)
    return weight.detach().flatten(1)


def _optimizer(network: nn.Module, training: Training, rate: float, *, first: bool) -> torch.optim.Optimizer:
    parameters = list(network.parameters())
    plain = torch.optim.SGD(parameters, lr=rate, momentum=training.momentum)
    if first:  # the start is the same for all, so that runs differ by their training
        return plain
    if training.first_layer_rate is not None:
        groups: list[dict[str, Any]] = [{"params": parameters[:1], "lr": training.first_layer_rate}]
        groups.append({"params": parameters[1:]})
        return torch.optim.SGD(groups, lr=rate, momentum=training.momentum)
    return SpeedLimited(plain, network, dict(training.speeds), eps=training.eps) if training.speeds else plain


def _train_epoch(
    network: nn.Module, task: Task, optimizer: torch.optim.Optimizer, batch: int, generator: torch.Generator
) -> None:
    network.train()
    order = torch.randperm(len(task.inputs), generator=generator).to(task.inputs.device)
    for rows in order.split(batch):
        optimizer.zero_grad()
        nn.functional.mse_loss(network(task.inputs[rows]), task.targets[rows]).backward()
        optimizer.step()
    network.eval()


def _look(
    curves: Curves,
    epoch: int,
    network: nn.Module,
    task: Task,
    training: Training,
    initial: dict[str, Tensor],
    probe: Tensor,
) -> None:
    moments = layer_moments(network, probe, layers=curves.layers)
    by_layer = [
        ansatz_readings(
            moments[name].weight,
            initial[name],
            moments[name].ptk_covariance,
            centering=training.centering,
            draws=training.draws,
            seed=crc32(f"{name} {epoch}".encode()),
        )
        for name in curves.layers
    ]
    curves.epochs.append(epoch)
    curves.readings.append({name: [float(layer[name]) for layer in by_layer] for name in by_layer[0]})
    with torch.no_grad():
        for inputs, targets, errors in (
            (task.inputs, task.targets, curves.train_error),
            (task.test_inputs, task.test_targets, curves.test_error),
        ):
            outputs = torch.cat([network(rows) for rows in inputs.split(1024)])
            errors.append(float(nn.functional.mse_loss(outputs, targets)))
        curves.test_accuracy.append(float((outputs.argmax(1) == targets.argmax(1)).float().mean()))
