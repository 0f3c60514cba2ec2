"""tangentlens itself, in the project's own environment."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.peers.harness import Shared
from benchmarks.peers.torch_side import run


def method(shared: Shared, kernel: str) -> Any:
    from tangentlens.kernels import entk, entk_full
    from tangentlens.kernels.top_spectrum import top_spectrum

    model, inputs = shared.torch()
    if kernel == "top200":
        return lambda n: top_spectrum(model, inputs[:n], modes=min(200, n), dtype=torch.float32), worst_residual
    found = entk_full if kernel == "full" else entk
    read = (lambda k, few: k[:few, :, :few]) if kernel == "full" else (lambda k, few: k[:few, :few])
    return lambda n: found(model, inputs[:n]), read


def worst_residual(modes: Any, few: int) -> float:
    """||K v - lambda v|| / ||K|| of the worst mode: there is no reference for modes of the whole kernel."""
    return float(modes.residuals.max())


if __name__ == "__main__":
    run({"exact": method})
