"""The workloads every peer measures: one network, its weights, its inputs and a float64 reference in one npz file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Workload:
    """A network of `benchmarks.models`, how many examples of which kind, and what is asked of it."""

    name: str
    builder: str
    sizes: dict[str, Any]
    inputs: tuple[str, ...]
    examples: int
    kernels: tuple[str, ...]
    reference: int = 4  # examples of the float64 brute force
    notes: dict[str, Any] = field(default_factory=dict)

    def titled(self, kernel: str) -> str:
        return f"{self.name}, N={self.examples}, {kernel} kernel".replace("top200 kernel", "200 largest modes")


_MLP = {"widths": [784, 1024, 1024, 10]}
_GPT2 = {"layers": 12, "width": 768, "heads": 12, "length": 128, "vocabulary": 50257, "outputs": 1}
_SMALL_TRANSFORMER = {"layers": 2, "width": 128, "heads": 4, "length": 64, "vocabulary": 32, "outputs": 32}
_CNN = {"channels": [64, 128, 128], "outputs": 10}

WORKLOADS = {
    each.name: each
    for each in (
        Workload("mlp", "mlp", _MLP, ("normal", "784"), 512, ("full", "averaged")),
        Workload("mlp-128", "mlp", _MLP, ("normal", "784"), 128, ("full",)),
        Workload("cnn", "cnn", _CNN, ("normal", "3", "32", "32"), 256, ("full", "averaged")),
        Workload("resnet18", "resnet18", {}, ("normal", "3", "32", "32"), 64, ("averaged",), 2),
        Workload("transformer", "Transformer", _SMALL_TRANSFORMER, ("tokens", "32", "64"), 128, ("full",)),
        Workload("gpt2", "Transformer", _GPT2, ("tokens", "50257", "128"), 32, ("averaged",), 2),
        Workload("modular", "Quadratic", {"p": 29, "width": 512}, ("pairs", "29"), 841, ("full", "top200")),
    )
}


def toy(workload: Workload) -> Workload:
    """The same workload at a size that takes a second, for tests of the benchmarks themselves."""
    small: dict[str, dict[str, Any]] = {
        "mlp": {"widths": [12, 16, 16, 3]},
        "cnn": {"channels": [4, 6], "outputs": 3, "image": [3, 8, 8]},
        "resnet18": {"width": 4, "outputs": 3},
        "Transformer": {"layers": 1, "width": 8, "heads": 2, "length": 6, "vocabulary": 11, "outputs": 3},
        "Quadratic": {"p": 5, "width": 8},
    }
    inputs = {"mlp": ("normal", "12"), "cnn": ("normal", "3", "8", "8"), "Quadratic": ("pairs", "5")}
    shape = inputs.get(workload.builder, ("tokens", "11", "6") if workload.inputs[0] == "tokens" else workload.inputs)
    return Workload(workload.name, workload.builder, small[workload.builder], shape, 6, workload.kernels, 2)


def written(workload: Workload, folder: Path) -> Path:
    """The workload's file, made once per folder: seeded weights and inputs, and the kernel of the first examples."""
    import numpy as np
    import torch

    from benchmarks import models
    from tests.reference import tangent

    described = json.dumps(asdict(workload), sort_keys=True)
    file = folder / f"{workload.name}.npz"
    if file.exists() and str(np.load(file)["described"]) == described:
        return file
    torch.manual_seed(0)
    model = getattr(models, workload.builder)(**workload.sizes).eval()
    inputs = drawn(workload.inputs, workload.examples)
    few = inputs[: workload.reference]
    jacobian = tangent.jacobian(tangent.in_float64(model), few.double() if few.is_floating_point() else few)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"weights/{name}": value.numpy() for name, value in model.state_dict().items()}
    kernel = tangent.full_kernel(jacobian).numpy()
    np.savez(file, described=described, inputs=inputs.numpy(), reference=kernel, **weights)
    return file


def drawn(kind: tuple[str, ...], examples: int) -> Any:
    """Inputs of a kind: normal numbers of a shape, tokens below a bound, or all pairs of numbers modulo p."""
    import torch
    from torch.nn.functional import one_hot

    if kind[0] == "normal":
        return torch.randn(examples, *map(int, kind[1:]))
    if kind[0] == "tokens":
        return torch.randint(int(kind[1]), (examples, int(kind[2])))
    numbers = torch.arange(int(kind[1]))
    pairs = torch.cartesian_prod(numbers, numbers)[:examples]
    return one_hot(pairs, int(kind[1])).flatten(1).float()
