"""ViViT (on BackPACK): Gram matrices of the square root of a squared error's Gauss-Newton matrix."""

from __future__ import annotations

from typing import Any

import torch
from backpack import backpack, extend
from vivit.linalg.utils import get_vivit_extension

from benchmarks.peers.harness import Shared, with_modes
from benchmarks.peers.torch_side import run


def method(shared: Shared, kernel: str) -> Any:
    if kernel != "full":
        raise NotImplementedError("no kernel averaged over outputs, no modes of the unscaled kernel")
    model, inputs = shared.torch()
    model, loss = extend(model), extend(torch.nn.MSELoss(reduction="sum"))
    extension = get_vivit_extension(None, 0)

    def compute(n: int) -> Any:
        grams = []

        def add(module: torch.nn.Module) -> None:  # summed and freed layer by layer, as ViViT's own hooks do
            for parameter in module.parameters(recurse=False):
                gram = getattr(parameter, extension.savefield)["gram_mat"]()
                delattr(parameter, extension.savefield)
                grams[:] = [grams[0] + gram if grams else gram]

        outputs = model(inputs[:n])
        with backpack(extension, extension_hook=add):
            loss(outputs, torch.zeros_like(outputs)).backward()
        return grams[0].div_(2)  # the Hessian of a sum of squares is twice the identity

    return compute, lambda k, few: k[:, :few, :, :few].permute(1, 0, 3, 2).detach()


if __name__ == "__main__":
    run({"Gram": with_modes(method)})
