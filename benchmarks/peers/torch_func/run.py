"""PyTorch's recipe, vmap(jacrev) contracted over the parameters, in the project's own environment."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.harness import Shared, with_modes
from benchmarks.peers.torch_side import run
from benchmarks.recipes import blocks, tutorial

BLOCK = {"mlp": 32, "mlp-128": 32, "cnn": 64, "resnet18": 4, "transformer": 32, "gpt2": 4, "modular": 128}


def method(tuned: bool) -> Any:
    def prepared(shared: Shared, kernel: str) -> Any:
        if kernel not in ("full", "averaged"):
            raise NotImplementedError("no spectra")
        model, inputs = shared.torch()
        block = BLOCK[shared.described["name"]]

        def compute(n: int) -> Any:
            return blocks(model, inputs[:n], kernel, block) if tuned else tutorial(model, inputs[:n], kernel)

        if kernel == "averaged":
            return compute, lambda k, few: k[:few, :few].detach()
        return compute, (lambda k, few: k[:few, :, :few].detach())

    return prepared


if __name__ == "__main__":
    run({"tutorial": with_modes(method(False)), "tuned": with_modes(method(True))})
