"""How far training has come, seen from the weights and from the probe."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

INITIAL, TARGETS = frozenset({"initial"}), frozenset({"targets"})


def training(targets: bool = True) -> list[Measure]:
    """Norms of the parameters, their distance from the beginning, and how the probe fares where targets are given."""
    measures = [
        Measure("training/parameter_norm", (), parameter_norm, attrs={
            "long_name": "norm of the parameters", "units": "", "question": "How large are the weights?"}),
        Measure("training/parameter_distance", (), parameter_distance, needs=INITIAL, attrs={
            "long_name": "distance from the initial parameters", "units": "", "question": "How far have they moved?"}),
        Measure("training/layer_norm", ("layer",), layer_norms, attrs={
            "long_name": "norm of the layer's parameters", "units": ""}),
        Measure("training/layer_distance", ("layer",), layer_distances, needs=INITIAL, attrs={
            "long_name": "distance of the layer's parameters from the initial ones", "units": ""}),
    ]  # fmt: skip
    if targets:
        measures += [
            Measure("training/probe_loss", (), probe_loss, needs=TARGETS, attrs={
                "long_name": "loss on the probe", "units": "", "scale": "log"}),
            Measure("training/probe_accuracy", (), probe_accuracy, needs=TARGETS, attrs={
                "long_name": "accuracy on the probe", "units": "", "bounds": [0.0, 1.0], "chance": "probe_chance"}),
            Measure("training/probe_chance", (), probe_chance, needs=TARGETS, attrs={
                "long_name": "share of the largest class", "units": "", "bounds": [0.0, 1.0]}),
        ]  # fmt: skip
    return measures


def parameter_norm(snapshot: Snapshot) -> float:
    return _norm(snapshot.model.parameters())


def parameter_distance(snapshot: Snapshot) -> float:
    return _norm(_moved(snapshot).values())


def layer_norms(snapshot: Snapshot) -> dict[str, float]:
    """By module that owns the parameters."""
    return {layer: _norm(tensors) for layer, tensors in _by_layer(dict(snapshot.model.named_parameters())).items()}


def layer_distances(snapshot: Snapshot) -> dict[str, float]:
    return {layer: _norm(tensors) for layer, tensors in _by_layer(_moved(snapshot)).items()}


def probe_loss(snapshot: Snapshot) -> Float[Tensor, ""]:
    """Cross-entropy where the targets are classes, mean squared error where they are numbers."""
    assert snapshot.targets is not None
    outputs = snapshot.outputs.double()
    if _classes(snapshot) is not None and not snapshot.targets.is_floating_point():
        return functional.cross_entropy(outputs, snapshot.targets.reshape(-1))
    return functional.mse_loss(outputs, snapshot.targets.reshape(outputs.shape).double())


def probe_accuracy(snapshot: Snapshot) -> float:
    """Share of examples whose largest output is that of the target; NaN without classes or finite outputs."""
    classes = _classes(snapshot)
    if classes is None or not bool(torch.isfinite(snapshot.outputs).all()):
        return math.nan
    return (snapshot.outputs.argmax(1) == classes).double().mean().item()


def probe_chance(snapshot: Snapshot) -> float:
    classes = _classes(snapshot)
    if classes is None:
        return math.nan
    return (torch.bincount(classes).max() / len(classes)).item()


def _classes(snapshot: Snapshot) -> Tensor | None:
    """Targets as classes: integers of one a example, or rows with one entry above all others, as in one-hot."""
    targets, outputs = snapshot.targets, snapshot.outputs
    if targets is None or outputs.shape[1] < 2:
        return None
    if not targets.is_floating_point():
        return targets.reshape(-1) if targets.numel() == len(outputs) else None
    if targets.shape != outputs.shape:
        return None
    two_values = ((targets == targets.max()) | (targets == targets.min())).all()
    return targets.argmax(1) if two_values and bool((targets.max() == targets).sum(1).eq(1).all()) else None


def _moved(snapshot: Snapshot) -> dict[str, Tensor]:
    initial = snapshot.initial
    return {name: tensor.detach() - initial[name] for name, tensor in snapshot.model.named_parameters()}


def _norm(tensors: object) -> float:
    squares = [tensor.detach().double().square().sum() for tensor in tensors]  # type: ignore[attr-defined]
    return math.sqrt(sum(square.item() for square in squares))


def _by_layer(tensors: dict[str, Tensor]) -> dict[str, list[Tensor]]:
    layers: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        layers.setdefault(name.rpartition(".")[0], []).append(tensor)
    return layers
