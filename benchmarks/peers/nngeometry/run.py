"""NNGeometry: a dense Gram matrix from hooks on linear and convolutional layers."""

from __future__ import annotations

from typing import Any

from nngeometry import GramMatrix
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.harness import Shared, with_modes
from benchmarks.peers.torch_side import run


def method(shared: Shared, kernel: str) -> Any:
    if kernel != "full":
        raise NotImplementedError("no kernel averaged over outputs")
    model, inputs = shared.torch()

    def compute(n: int) -> Any:
        return GramMatrix(model, DataLoader(TensorDataset(inputs[:n]), batch_size=n)).to_torch()

    return compute, lambda k, few: k[:, :few, :, :few].permute(1, 0, 3, 2).detach()


if __name__ == "__main__":
    run({"dense": with_modes(method)})
