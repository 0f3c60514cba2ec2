"""The empirical neural tangent kernel, K[n, c, m, d] = <d f_c(x_n) / d theta, d f_d(x_m) / d theta>, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.measuring import Globs, measuring
from tangentlens.capture.outputs import Outputs, chosen_outputs
from tangentlens.capture.probe import Inputs, probe
from tangentlens.kernels.blockwise import Blockwise
from tangentlens.kernels.ways import Reduction


def entk(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
) -> Float[Tensor, "example other"]:
    """Mean over outputs of the kernels of single outputs, (1/C) sum_c K[n, c, m, c] (trace-mean of arXiv 2510.00468).

    >>> import torch, tangentlens as tl
    >>> model, x = torch.nn.Linear(3, 2, bias=False), torch.eye(3)
    >>> torch.equal(tl.entk(model, x), x @ x.T)
    True
    """
    return _kernels(model, inputs, others, outputs, parameters, dtype, chunk, "mean", _whole)[_WHOLE]


def entk_full(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
) -> Float[Tensor, "example output other output"]:
    """The whole kernel between every output of every example; (N C)(M C) numbers."""
    return _kernels(model, inputs, others, outputs, parameters, dtype, chunk, "full", _whole)[_WHOLE]


def entk_mean_output(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
) -> Float[Tensor, "example other"]:
    """Kernel of the mean output, (1/C^2) sum_{c,d} K[n, c, m, d]; one backward pass per example, blind to any output
    direction orthogonal to all-ones (all-pairs mean of arXiv 2510.00468)."""
    mean = mean_output(outputs)
    return _kernels(model, inputs, others, mean, parameters, dtype, chunk, "mean", _whole)[_WHOLE]


def entk_by_layer(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    by: Literal["module", "parameter"] = "module",
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
) -> dict[str, Float[Tensor, "example other"]]:
    """`entk` split by module or parameter tensor; the parts sum to the whole. A shared parameter counts once, under its
    first name."""
    if by not in ("module", "parameter"):
        raise ValueError(f"by= must be 'module' or 'parameter', got {by!r}; choose how to split the kernel")
    grouping = module_of if by == "module" else str
    return _kernels(model, inputs, others, outputs, parameters, dtype, chunk, "mean", grouping)


def mean_output(outputs: Outputs | None) -> Outputs:
    """The chosen outputs, averaged to one."""

    def mean_of_outputs(raw: Any) -> Tensor:
        chosen = chosen_outputs(raw, outputs)
        return chosen.reshape(len(chosen), -1).mean(1, keepdim=True) if chosen.ndim else chosen

    return mean_of_outputs


def module_of(parameter: str) -> str:
    """The module that owns a parameter; the parameters of parametrizations belong to the module they shape."""
    owner, parametrised, _ = parameter.partition("parametrizations.")
    return owner.rstrip(".") if parametrised else parameter.rpartition(".")[0]


_WHOLE = "all"


def _whole(_: str) -> str:
    return _WHOLE


def _kernels(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None,
    outputs: Outputs | None,
    parameters: Globs | None,
    dtype: torch.dtype | None,
    chunk: int | None,
    reduction: Reduction,
    grouping: Callable[[str], str],
) -> dict[str, Tensor]:
    rows = probe(inputs)
    columns = None if others is None else probe(others)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk= counts the examples captured at once, got {chunk}; pass 1 or more, or nothing")
    with measuring(model, rows, outputs, parameters, dtype) as measurement:
        prepared = None if columns is None else measurement.prepared(columns)
        work = Blockwise(measurement, measurement.prepared(rows), prepared, reduction, grouping, chunk)
        return work.kernels()
