"""BackPACK: gradients per example, one backward pass per output, contracted over the parameters."""

from __future__ import annotations

from typing import Any

import torch
from backpack import backpack, extend
from backpack.extensions import BatchGrad

from benchmarks.peers.harness import Shared, with_modes
from benchmarks.peers.torch_side import run


def method(shared: Shared, kernel: str) -> Any:
    if kernel not in ("full", "averaged"):
        raise NotImplementedError("no spectra")
    model, inputs = shared.torch()
    model = extend(model)

    def gradients(n: int) -> list[torch.Tensor]:
        """(output, example, parameter) for every parameter tensor."""
        found: list[list[torch.Tensor]] = []
        outputs = model(inputs[:n])
        for c in range(outputs.shape[1]):
            model.zero_grad()
            again = c + 1 < outputs.shape[1]
            with backpack(BatchGrad(), retain_graph=again):
                outputs[:, c].sum().backward(retain_graph=again)
            found.append([parameter.grad_batch.flatten(1) for parameter in model.parameters()])
            for parameter in model.parameters():
                del parameter.grad_batch
        return [torch.stack(each) for each in zip(*found)]

    def compute(n: int) -> torch.Tensor:
        if kernel == "full":
            return sum(torch.einsum("cnp,dmp->ncmd", each, each) for each in gradients(n))  # type: ignore[return-value]
        return sum(torch.einsum("cnp,cmp->nm", each, each) / len(each) for each in gradients(n))  # type: ignore[return-value]

    if kernel == "averaged":
        return compute, lambda k, few: k[:few, :few].detach()
    return compute, lambda k, few: k[:few, :, :few].detach()


if __name__ == "__main__":
    run({"BatchGrad": with_modes(method)})
