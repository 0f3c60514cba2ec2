"""The parameter side of the tangent kernel: J^T J and J V, for models with fewer parameters than outputs x examples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.factors import formed
from tangentlens.capture.measuring import Globs, Measurement, measuring
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs, probe
from tangentlens.distributed import Job, Ranks, joined
from tangentlens.kernels.agreed import check_alike
from tangentlens.kernels.memory import refuse_unless_it_fits
from tangentlens.kernels.passes import checked_chunk


@torch.no_grad()
def jacobian_gram(
    model: nn.Module,
    inputs: Inputs,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    ranks: Ranks = None,
) -> Float[Tensor, "parameter parameter"]:
    """J^T J over all examples and outputs: the tangent kernel's nonzero eigenvalues from the parameter side.

    Parameters are flattened in the order of named_parameters(), complex ones as pairs of real numbers. Cost N C P^2,
    memory P^2.
    """
    with (
        joined(ranks) as job,
        _jacobian(model, inputs, outputs, parameters, dtype, chunk, job) as (measurement, blocks),
    ):
        size = sum(_real_numbers(p) for p in measurement.wanted.values())
        item = torch.finfo(measurement.dtype).bits // 8
        refuse_unless_it_fits("J^T J", size, size, size * size * item, measurement.device)
        gram = torch.zeros(size, size, dtype=measurement.dtype, device=measurement.device)
        for block in blocks:
            gram.addmm_(block.flatten(0, 1).T, block.flatten(0, 1))
        return job.sum(gram)


@torch.no_grad()
def jacobian_product(
    model: nn.Module,
    inputs: Inputs,
    vectors: Float[Tensor, "parameter vector"],
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    ranks: Ranks = None,
) -> Float[Tensor, "example output vector"]:
    """J V: the change of every output along directions in parameter space (eigenvectors of J^T J become modes)."""
    with (
        joined(ranks) as job,
        _jacobian(model, inputs, outputs, parameters, dtype, chunk, job) as (measurement, blocks),
    ):
        directions = vectors.to(measurement.device, measurement.dtype)
        count = measurement.output_count(measurement.prepared(inputs).rows(0, 1))
        none = directions.new_zeros(0, count, directions.shape[1])
        return job.rows(torch.cat([none, *(block @ directions for block in blocks)]), job.shares(probe(inputs).length))


@contextmanager
def _jacobian(
    model: nn.Module,
    inputs: Inputs,
    outputs: Outputs | None,
    parameters: Globs | None,
    dtype: torch.dtype | None,
    chunk: int | None,
    job: Job,
) -> Iterator[tuple[Measurement, Iterator[Float[Tensor, "example output parameter"]]]]:
    checked_chunk(chunk)
    rows = probe(inputs)
    with measuring(model, rows, outputs, parameters, dtype) as measurement:
        measurement.reader.gathered.update(measurement.wanted)  # every piece in the parameter's own coordinates
        prepared = measurement.prepared(rows)
        check_alike(job, measurement, prepared)
        share = job.shares(prepared.length)[job.rank]
        size = sum(_real_numbers(p) for p in measurement.wanted.values())
        count = measurement.output_count(prepared.rows(0, 1))
        item = torch.finfo(measurement.dtype).bits // 8
        step = chunk or max(1, min(1024, (64 << 20) // (count * size * item)))

        nothing = torch.zeros((), dtype=measurement.dtype, device=measurement.device)

        def blocks() -> Iterator[Tensor]:
            for start in range(*share, step):
                chunked = prepared.rows(start, min(start + step, share[1]))
                pieces = measurement.retried(lambda c=chunked: measurement.pieces(c, list(measurement.wanted)))  # type: ignore[misc]
                columns = [
                    formed(pieces[name].factors, pieces[name].shape).gradient.reshape(chunked.length, count, -1)
                    if name in pieces
                    else nothing.expand(chunked.length, count, _real_numbers(parameter))
                    for name, parameter in measurement.wanted.items()
                ]
                yield torch.cat(columns, 2).detach()

        yield measurement, blocks()


def _real_numbers(parameter: Tensor) -> int:
    return parameter.numel() * (2 if parameter.is_complex() else 1)
