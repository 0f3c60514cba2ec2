"""TorchJD's autogram engine: the Gramian of the Jacobian of all outputs of a batch."""

from __future__ import annotations

from typing import Any

from torchjd.autogram import Engine

from benchmarks.peers.harness import Shared, with_modes
from benchmarks.peers.torch_side import run


def method(batch_axis: int | None) -> Any:
    """With a batch axis every module must keep examples apart; without one any network will do, at a cost."""

    def prepared(shared: Shared, kernel: str) -> Any:
        if kernel != "full":
            raise NotImplementedError("the whole Gramian only")
        model, inputs = shared.torch()
        outputs = model(inputs[:1]).shape[1]
        engine = Engine(model, batch_dim=batch_axis)  # after it, every forward pass must have its backward pass

        def compute(n: int) -> Any:
            return engine.compute_gramian(model(inputs[:n])).view(n, outputs, n, outputs)

        return compute, lambda k, few: k[:few, :, :few].detach()

    return prepared


if __name__ == "__main__":
    run({"autogram": with_modes(method(0)), "autogram-whole": with_modes(method(None))})
