"""The empirical neural tangent kernel, K[n, c, m, d] = <d f_c(x_n) / d theta, d f_d(x_m) / d theta>, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.measuring import Globs, measuring
from tangentlens.capture.outputs import Outputs, chosen_outputs
from tangentlens.capture.probe import Inputs, probe
from tangentlens.distributed import Ranks, joined
from tangentlens.kernels.agreed import check_alike
from tangentlens.kernels.blockwise import Blockwise
from tangentlens.kernels.lowered import state_error
from tangentlens.kernels.passes import checked_chunk
from tangentlens.kernels.stored import StoredKernel
from tangentlens.kernels.ways import Reduction
from tangentlens.kernels.writing import Out, written


@overload
def entk(
    model: nn.Module, inputs: Inputs, others: Inputs | None = None, *, outputs: Outputs | None = None,
    parameters: Globs | None = None, dtype: torch.dtype | None = None, chunk: int | None = None, ranks: Ranks = None,
    out: None = None,
) -> Tensor: ...  # fmt: skip
@overload
def entk(
    model: nn.Module, inputs: Inputs, others: Inputs | None = None, *, outputs: Outputs | None = None,
    parameters: Globs | None = None, dtype: torch.dtype | None = None, chunk: int | None = None, ranks: Ranks = None,
    out: Out,
) -> StoredKernel: ...  # fmt: skip
def entk(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    ranks: Ranks = None,
    out: Out | None = None,
) -> Float[Tensor, "example other"] | StoredKernel:
    """Mean over outputs of the kernels of single outputs, (1/C) sum_c K[n, c, m, c] (trace-mean of arXiv 2510.00468).

    >>> import torch, tangentlens as tl
    >>> model, x = torch.nn.Linear(3, 2, bias=False), torch.eye(3)
    >>> torch.equal(tl.entk(model, x), x @ x.T)
    True
    """
    return _kernels(model, inputs, others, outputs, parameters, dtype, chunk, ranks, out, "mean", None)


@overload
def entk_full(
    model: nn.Module, inputs: Inputs, others: Inputs | None = None, *, outputs: Outputs | None = None,
    parameters: Globs | None = None, dtype: torch.dtype | None = None, chunk: int | None = None, ranks: Ranks = None,
    out: None = None,
) -> Tensor: ...  # fmt: skip
@overload
def entk_full(
    model: nn.Module, inputs: Inputs, others: Inputs | None = None, *, outputs: Outputs | None = None,
    parameters: Globs | None = None, dtype: torch.dtype | None = None, chunk: int | None = None, ranks: Ranks = None,
    out: Out,
) -> StoredKernel: ...  # fmt: skip
def entk_full(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    ranks: Ranks = None,
    out: Out | None = None,
) -> Float[Tensor, "example output other output"] | StoredKernel:
    """The whole kernel between every output of every example; (N C)(M C) numbers."""
    return _kernels(model, inputs, others, outputs, parameters, dtype, chunk, ranks, out, "full", None)


@overload
def entk_mean_output(
    model: nn.Module, inputs: Inputs, others: Inputs | None = None, *, outputs: Outputs | None = None,
    parameters: Globs | None = None, dtype: torch.dtype | None = None, chunk: int | None = None, ranks: Ranks = None,
    out: None = None,
) -> Tensor: ...  # fmt: skip
@overload
def entk_mean_output(
    model: nn.Module, inputs: Inputs, others: Inputs | None = None, *, outputs: Outputs | None = None,
    parameters: Globs | None = None, dtype: torch.dtype | None = None, chunk: int | None = None, ranks: Ranks = None,
    out: Out,
) -> StoredKernel: ...  # fmt: skip
def entk_mean_output(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    ranks: Ranks = None,
    out: Out | None = None,
) -> Float[Tensor, "example other"] | StoredKernel:
    """Kernel of the mean output, (1/C^2) sum_{c,d} K[n, c, m, d]; one backward pass per example, blind to any output
    direction orthogonal to all-ones (all-pairs mean of arXiv 2510.00468)."""
    mean = mean_output(outputs)
    return _kernels(model, inputs, others, mean, parameters, dtype, chunk, ranks, out, "mean", None)


@overload
def entk_by_layer(
    model: nn.Module, inputs: Inputs, others: Inputs | None = None, *,
    by: Literal["module", "parameter"] = "module", outputs: Outputs | None = None,
    parameters: Globs | None = None, dtype: torch.dtype | None = None, chunk: int | None = None, ranks: Ranks = None,
    out: None = None,
) -> dict[str, Tensor]: ...  # fmt: skip
@overload
def entk_by_layer(
    model: nn.Module, inputs: Inputs, others: Inputs | None = None, *,
    by: Literal["module", "parameter"] = "module", outputs: Outputs | None = None,
    parameters: Globs | None = None, dtype: torch.dtype | None = None, chunk: int | None = None, ranks: Ranks = None,
    out: Out,
) -> dict[str, StoredKernel]: ...  # fmt: skip
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
    ranks: Ranks = None,
    out: Out | None = None,
) -> dict[str, Float[Tensor, "example other"]] | dict[str, StoredKernel]:
    """`entk` split by module or parameter tensor; the parts sum to the whole. A shared parameter counts once, under its
    first name."""
    if by not in ("module", "parameter"):
        raise ValueError(f"by= must be 'module' or 'parameter', got {by!r}; choose how to split the kernel")
    grouping = module_of if by == "module" else str
    return _kernels(model, inputs, others, outputs, parameters, dtype, chunk, ranks, out, "mean", grouping)


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


def _kernels(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None,
    outputs: Outputs | None,
    parameters: Globs | None,
    dtype: torch.dtype | None,
    chunk: int | None,
    ranks: Ranks,
    out: Out | None,
    reduction: Reduction,
    grouping: Callable[[str], str] | None,
) -> Any:
    """One kernel, or one a group where parameters are grouped."""
    checked_chunk(chunk)
    with joined(ranks) as job:
        rows = probe(inputs)
        columns = None if others is None else probe(others)
        with measuring(model, rows, outputs, parameters, dtype) as measurement:
            ready = measurement.prepared(rows)
            prepared = None if columns is None else measurement.prepared(columns)
            check_alike(job, measurement, ready, prepared)
            work = Blockwise(measurement, ready, prepared, reduction, grouping or _whole, chunk, job)
            if out is not None:
                stored = written(work, out, model, inputs, others, by_layer=grouping is not None)
                state_error(work, stored if isinstance(stored, dict) else {_WHOLE: stored})
                return stored
            kernels = work.kernels()
            state_error(work, kernels)
            return kernels if grouping is not None else kernels[_WHOLE]


_WHOLE = "all"


def _whole(_: str) -> str:
    return _WHOLE
