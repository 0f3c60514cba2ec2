"""PyTorch's recipe for an eNTK: per-example Jacobians by vmap(jacrev), contracted over the parameters."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

Kernel = Literal["full", "averaged"]
CONTRACTION = {"full": "Naf,Mbf->NaMb", "averaged": "Naf,Maf->NM"}


def jacobian(model: nn.Module, inputs: Tensor) -> list[Float[Tensor, "example output parameter"]]:
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def outputs(parameters: dict[str, Tensor], example: Tensor) -> Tensor:
        return functional_call(model, parameters, (example.unsqueeze(0),)).squeeze(0)

    per_parameter = vmap(jacrev(outputs), (None, 0))(parameters, inputs)
    return [of_parameter.flatten(2) for of_parameter in per_parameter.values()]


def tutorial(model: nn.Module, inputs: Tensor, kernel: Kernel) -> Tensor:
    """As the tutorial "Neural Tangent Kernels" on pytorch.org contracts it, the Jacobian taken once for both sides."""
    whole = jacobian(model, inputs)
    found = torch.stack([torch.einsum(CONTRACTION[kernel], j, j) for j in whole]).sum(0)
    return found if kernel == "full" else found / whole[0].shape[1]


def blocks(model: nn.Module, inputs: Tensor, kernel: Kernel, block: int) -> Tensor:
    """The recipe at its best: blocks of examples, pairs above the diagonal alone, matrix products into one sum."""
    count, outputs = len(inputs), model(inputs[:1]).shape[1]
    found = torch.zeros(count, outputs, count, outputs) if kernel == "full" else torch.zeros(count, count)
    for i in range(0, count, block):
        rows = jacobian(model, inputs[i : i + block])
        for j in range(i, count, block):
            columns = rows if i == j else jacobian(model, inputs[j : j + block])
            n, m = len(rows[0]), len(columns[0])
            if kernel == "full":
                pair = torch.zeros(n * outputs, m * outputs)
                for left, right in zip(rows, columns, strict=True):
                    pair.addmm_(left.flatten(0, 1), right.flatten(0, 1).T)
                pair = pair.view(n, outputs, m, outputs)
                found[i : i + n, :, j : j + m] = pair
                found[j : j + m, :, i : i + n] = pair.permute(2, 3, 0, 1)
            else:
                pair = torch.zeros(n, m)
                for left, right in zip(rows, columns, strict=True):
                    pair.addmm_(left.flatten(1), right.flatten(1).T, alpha=1 / outputs)
                found[i : i + n, j : j + m] = pair
                found[j : j + m, i : i + n] = pair.T
    return found
