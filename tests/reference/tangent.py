"""The obvious tangent kernel: one example at a time, one backward pass per output, nothing clever.

Every kernel here is read off one object, the Jacobian {parameter name: (example, output, parameter)}. The functions
work in the dtype of the model they are given; `in_float64` makes the copy the tests compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any
from unittest import mock

import torch
from jaxtyping import Float
from torch import Tensor, nn

Jacobian = dict[str, Tensor]  # name -> (example, output, parameter)


def in_float64(model: nn.Module) -> nn.Module:
    return deepcopy(model).double()


def example_count(inputs: Any) -> int:
    """The length of the first tensor found: every model of the tests has its examples on the first axis."""
    if isinstance(inputs, Tensor):
        return len(inputs)
    values = inputs.values() if isinstance(inputs, dict) else inputs
    return next(len(value) for value in values if isinstance(value, Tensor))


def examples(inputs: Any, chosen: list[int]) -> Any:
    """The same inputs with the chosen examples alone; what is not one row per example is passed on."""
    count = example_count(inputs)

    def rows(value: Any) -> Any:
        carries_examples = isinstance(value, Tensor) and value.dim() > 0 and len(value) == count
        return value[chosen] if carries_examples else value

    if isinstance(inputs, dict):
        return {name: rows(value) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(rows(value) for value in inputs)
    return rows(inputs)


def called(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(inputs)


def output_of_one_example(
    model: nn.Module, inputs: Any, n: int, outputs: Callable[[Any], Tensor] | None
) -> Float[Tensor, "output"]:
    exact = all(parameter.dtype == torch.float64 for parameter in model.parameters())
    with float32_is_float64() if exact else nullcontext():
        raw = called(model, examples(inputs, [n]))
    if outputs is not None:
        raw = outputs(raw)
    elif not isinstance(raw, Tensor):
        raw = raw.logits
    assert len(raw) == 1, f"one example went in, {len(raw)} came out"
    return raw.reshape(-1)


@contextmanager
def float32_is_float64() -> Iterator[None]:
    """Norms and softmaxes written for half precision cast to float32, which would round a float64 reference."""
    with (
        mock.patch.object(torch, "float32", torch.float64),
        mock.patch.object(torch, "float", torch.float64),
        mock.patch.object(Tensor, "float", Tensor.double),
    ):
        yield


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def jacobian(model: nn.Module, inputs: Any, outputs: Callable[[Any], Tensor] | None = None) -> Jacobian:
    """J[name][n, c] = d output_c(x_n) / d parameter, flattened; a parameter that is not used has zeros."""
    return _gradients(model, inputs, outputs, lambda of_example: of_example)


def mean_output_jacobian(model: nn.Module, inputs: Any, outputs: Callable[[Any], Tensor] | None = None) -> Jacobian:
    """J[name][n, 0] = d mean_c output_c(x_n) / d parameter, by differentiating the mean itself."""
    return _gradients(model, inputs, outputs, lambda of_example: of_example.mean(0, keepdim=True))


def _gradients(
    model: nn.Module, inputs: Any, outputs: Callable[[Any], Tensor] | None, reduced: Callable[[Tensor], Tensor]
) -> Jacobian:
    parameters = trainable(model)
    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for n in range(example_count(inputs)):
        with torch.enable_grad():
            out = reduced(output_of_one_example(model, inputs, n, outputs))
        of_example: dict[str, list[Tensor]] = {name: [] for name in parameters}
        for c in range(len(out)):
            gradients = torch.autograd.grad(out[c], list(parameters.values()), retain_graph=True, allow_unused=True)
            for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
                gradient = torch.zeros_like(parameter) if gradient is None else gradient.to_dense()
                of_example[name].append(real_numbers(gradient.detach()))
        for name in parameters:
            rows[name].append(torch.stack(of_example[name]))
    return {name: torch.stack(of_examples) for name, of_examples in rows.items()}


def real_numbers(tensor: Tensor) -> Float[Tensor, "number"]:
    """Flattened; a complex number is two real ones."""
    return torch.view_as_real(tensor).reshape(-1) if tensor.is_complex() else tensor.reshape(-1)


def at(jacobian: Jacobian, chosen: list[int]) -> Jacobian:
    return {name: of_parameter[chosen] for name, of_parameter in jacobian.items()}


def full_kernel(rows: Jacobian, columns: Jacobian | None = None) -> Float[Tensor, "example output other output2"]:
    columns = rows if columns is None else columns
    return sum(torch.einsum("ncp,mdp->ncmd", rows[name], columns[name]) for name in rows)


def averaged_over_outputs(full: Float[Tensor, "example output other output"]) -> Float[Tensor, "example other"]:
    return torch.einsum("ncmc->nm", full) / full.shape[1]


def kernel(rows: Jacobian, columns: Jacobian | None = None) -> Float[Tensor, "example other"]:
    return averaged_over_outputs(full_kernel(rows, columns))


def kernel_by_parameter(rows: Jacobian, columns: Jacobian | None = None) -> dict[str, Tensor]:
    columns = rows if columns is None else columns
    return {name: kernel({name: rows[name]}, {name: columns[name]}) for name in rows}


def kernel_by_module(rows: Jacobian, columns: Jacobian | None = None) -> dict[str, Tensor]:
    """Summed over the parameters a module holds itself (not those of its children); the root is the empty name.

    The parameters behind a parametrised weight belong to the module whose weight it is.
    """
    totals: dict[str, Tensor] = {}
    for name, of_parameter in kernel_by_parameter(rows, columns).items():
        module = (
            name.partition("parametrizations.")[0].rstrip(".")
            if "parametrizations." in name
            else name.rpartition(".")[0]
        )
        totals[module] = totals[module] + of_parameter if module in totals else of_parameter
    return totals


def product(
    rows: Jacobian, vectors: Float[Tensor, "column vector"], columns: Jacobian | None = None
) -> Float[Tensor, "row vector"]:
    full = full_kernel(rows, columns)
    return full.flatten(2, 3).flatten(0, 1) @ vectors


def gram_of_parameters(rows: Jacobian) -> Float[Tensor, "parameter parameter"]:
    flat = torch.cat([of_parameter.flatten(0, 1) for of_parameter in rows.values()], dim=1)
    return flat.T @ flat
