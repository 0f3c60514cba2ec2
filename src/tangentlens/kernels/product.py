"""The tangent kernel as an operator: K v from the same (a, b), never formed.

    G = sum_{m, d, t} v[m, d] b[m, d, t] a[m, t]^T     the size of the parameters
    (K v)[n, c] = sum_t b[n, c, t]^T G a[n, t]

Cost per vector 2 N T (C q + p q). Gradients are held if they fit beside what is free, captured again for every product
otherwise. Over ranks each has its own rows, and G is the one thing they sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.factors import Factor, Formed, Lookup, Outer
from tangentlens.capture.measuring import Globs, Measurement, measuring
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs, Probe, probe
from tangentlens.capture.sources import Piece
from tangentlens.distributed import Job, Ranks, Span, joined
from tangentlens.errors import BadInput, NonFiniteKernel
from tangentlens.kernels.agreed import check_alike, free_for_each, in_agreement, read_alike
from tangentlens.kernels.nonfinite import first_nonfinite
from tangentlens.kernels.passes import capture_chunk, checked_chunk
from tangentlens.kernels.plan import sampled_costs
from tangentlens.kernels.ways import Costs

Block = Float[Tensor, "row output vector"]
Columns = Float[Tensor, "column output vector"]


Chunk = tuple[int, dict[str, Piece]]
"""A number of examples and their gradients, piece by piece."""


@dataclass
class Product:
    """`product @ v` for blocks v of (M C, k); row n*C + c is output c of example n.

    It belongs to the parameters it was made with: after a training step it refuses rather than mix two models.
    """

    model: nn.Module
    inputs: Inputs
    others: Inputs | None
    outputs: Outputs | None
    parameters: Globs | None
    output_count: int
    examples: int
    other_examples: int
    dtype: torch.dtype
    device: torch.device
    multiply_adds: float
    """For one vector."""
    captures: float
    """Multiply-adds of capturing gradients anew, in every product unless they are held."""
    ranks: Ranks
    _step: int
    _hold: bool
    _versions: list[int]
    _held: dict[bool, list[Chunk]] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether gradients are kept between products."""
        return self._hold

    @property
    def shape(self) -> tuple[int, int]:
        return self.examples * self.output_count, self.other_examples * self.output_count

    @torch.no_grad()
    def __matmul__(self, vectors: Float[Tensor, "column *vector"]) -> Float[Tensor, "row *vector"]:
        if not isinstance(vectors, Tensor):
            raise TypeError(
                f"a product with a kernel needs a torch.Tensor, got {type(vectors).__name__}; pass torch.as_tensor(it)"
            )
        if vectors.ndim not in (1, 2) or len(vectors) != self.shape[1]:
            raise BadInput(
                f"a product with a kernel of {self.shape[0]} x {self.shape[1]} needs vectors of shape "
                f"({self.shape[1]}, k), got {tuple(vectors.shape)}; rows are example * {self.output_count} + output"
            )
        if self._versions != _versions(self.model):
            raise BadInput(
                "a product belongs to the parameters it was made with, got a model changed since; make a new one"
            )
        block = vectors.to(self.device, self.dtype).reshape(self.other_examples, self.output_count, -1)
        with joined(self.ranks) as job:
            result = self._product(block, job)
            if not bool(torch.isfinite(result).all()) and bool(torch.isfinite(block).all()):
                raise NonFiniteKernel(self._first_nonfinite())
            return result.reshape(self.shape[0], *vectors.shape[1:])

    def __repr__(self) -> str:
        rows, columns = self.shape
        how = "gradients held" if self._hold else "captured for every product"
        return f"Product({rows} x {columns} tangent kernel, {self.dtype} on {self.device}, {how})"

    def _product(self, block: Columns, job: Job) -> Block:
        rows, columns = job.shares(self.examples), job.shares(self.other_examples)
        mine = block[slice(*columns[job.rank])]
        if len(self._held) == 2:
            total = job.sums(_carried(self._held[False], mine), self.device)
            return job.rows(_applied(self._held[True], total, block), rows)
        with measuring(self.model, self.inputs, self.outputs, self.parameters, self.dtype, check=False) as measurement:
            others = self.inputs if self.others is None else self.others

            def once() -> Block:
                self._held.clear()
                total = _carried(self._chunks(measurement, others, columns[job.rank], rows=False), mine)
                read_alike(job, measurement)
                total = job.sums(total, self.device)
                result = _applied(self._chunks(measurement, self.inputs, rows[job.rank], rows=True), total, block)
                read_alike(job, measurement)
                return result

            return job.rows(in_agreement(job, measurement, once), rows)

    def _first_nonfinite(self) -> str:
        with measuring(self.model, self.inputs, self.outputs, self.parameters, self.dtype, check=False) as measurement:
            examples = [self.inputs] if self.others is None else [self.inputs, self.others]
            return first_nonfinite(measurement, [measurement.prepared(one) for one in examples])

    def _chunks(self, measurement: Measurement, inputs: Inputs, share: Span, rows: bool) -> Iterator[Chunk]:
        if rows and self.others is None and False in self._held:
            self._held[True] = self._held[False]
        if rows in self._held:
            yield from self._held[rows]
            return
        prepared: Probe = measurement.prepared(inputs)
        kept = []
        for start in range(*share, self._step):
            stop = min(start + self._step, share[1])
            chunk = stop - start, measurement.pieces(prepared.rows(start, stop), list(measurement.wanted))
            if self._hold:
                kept.append(chunk)
            yield chunk
        if self._hold:
            self._held[rows] = kept


def _carried(chunks: Iterable[Chunk], block: Columns) -> dict[str, Tensor]:
    """sum of gradients weighted by the vectors, per piece, (k, *shape)"""
    total: dict[str, Tensor] = {}
    start = 0
    for length, pieces in chunks:
        weights = block[start : start + length]
        for key, piece in pieces.items():
            for factor in piece.factors:
                part = carried(factor, weights, piece.shape)
                total[key] = total[key] + part if key in total else part
        start += length
    return total


def _applied(chunks: Iterable[Chunk], total: dict[str, Tensor], block: Columns) -> Block:
    blocks = [block.new_zeros(0, *block.shape[1:])]
    for length, pieces in chunks:
        result = block.new_zeros(length, *block.shape[1:])
        for key in pieces.keys() & total.keys():
            for factor in pieces[key].factors:
                result += applied(factor, total[key], pieces[key].shape)
        blocks.append(result)
    return torch.cat(blocks)


def _versions(model: nn.Module) -> list[int]:
    """Counts the in-place changes of every parameter: an optimiser's step shows."""
    return [p._version for p in model.parameters()]


@torch.no_grad()
def entk_product(
    model: nn.Module,
    inputs: Inputs,
    others: Inputs | None = None,
    *,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    ranks: Ranks = None,
) -> Product:
    """The full kernel as an operator on blocks of (M C, k) vectors, with `.shape`, `.dtype`, `.device` and `@`.

    Over `ranks` every process calls with the same vectors and has the whole result.
    """
    checked_chunk(chunk)
    rows = probe(inputs)
    columns = None if others is None else probe(others)
    with joined(ranks) as job, measuring(model, rows, outputs, parameters, dtype) as measurement:
        prepared = measurement.prepared(rows)
        check_alike(job, measurement, prepared, None if columns is None else measurement.prepared(columns))
        costs = sampled_costs(measurement, prepared, prepared, "full", True)
        item = torch.finfo(measurement.dtype).bits // 8
        examples = rows.length + (columns.length if columns is not None else 0)
        held = item * sum(costs.raw.values()) * examples / job.size
        step = chunk or capture_chunk(costs, measurement.dtype, measurement.device)
        per_vector = _per_example(costs) * (rows.length + (columns or rows).length)
        return Product(
            model, inputs, others, outputs, parameters, costs.outputs, rows.length, (columns or rows).length,
            measurement.dtype, measurement.device, per_vector, costs.capture_multiply_adds * examples, ranks, step,
            held <= free_for_each(job, measurement.device) / 4, _versions(model),
        )  # fmt: skip


Operator = Callable[[Tensor], Tensor]


def averaged(product: Product, full: Operator | None = None) -> Operator:
    """The kernel averaged over outputs as an operator, from the full one's: (1/C) sum_c K[:, c, :, c] v."""
    c, full = product.output_count, product.__matmul__ if full is None else full

    def apply(vectors: Float[Tensor, "column vector"]) -> Float[Tensor, "row vector"]:
        total = vectors.new_zeros(product.examples, vectors.shape[1])
        spread = vectors.new_zeros(product.other_examples, c, vectors.shape[1])
        for output in range(c):
            spread.zero_()
            spread[:, output] = vectors
            image = full(spread.flatten(0, 1)).view(product.examples, c, -1)
            total += image[:, output].to(total)
        return total / c

    return apply


def _per_example(costs: Costs) -> float:
    """Multiply-adds of one vector on one side of the product."""
    total = 0.0
    for piece, _ in costs.by_piece.values():
        for factor in piece.factors:
            if isinstance(factor, Outer):
                t, p, c, q = factor.a.shape[1], factor.a.shape[3], factor.b.shape[1], factor.b.shape[4]
                total += t * factor.a.shape[2] * (c * q + p * q)
            else:
                total += factor.values / (len(factor.b) if isinstance(factor, Lookup) else len(factor.gradient))
    return total


def carried(factor: Factor, weights: Block, shape: torch.Size) -> Float[Tensor, "vector ..."]:
    """sum over examples and outputs of weight * gradient."""
    k = weights.shape[2]
    match factor:
        case Outer():
            signals = torch.einsum("nctgq,nck->kgqnt", factor.b, weights)
            g, q = signals.shape[1:3]
            inputs = factor.a.permute(2, 0, 1, 3).flatten(1, 2)  # group (example position) into
            total = signals.flatten(3) @ inputs  # k g q p
            return (total.transpose(2, 3) if factor.flipped else total).reshape(k, *shape)
        case Lookup():
            signals = torch.einsum("nctq,nck->kntq", factor.b, weights).flatten(1, 2)
            table = signals.new_zeros(k, shape[0], signals.shape[-1])
            return table.index_add_(1, factor.ids.clamp(min=0).flatten(), signals).reshape(k, *shape)
        case Formed():
            return (weights.flatten(0, 1).T @ factor.flat.flatten(0, 1)).reshape(k, *shape)


def applied(factor: Factor, total: Float[Tensor, "vector ..."], shape: torch.Size) -> Block:
    """Inner product of every gradient with every vector of parameters."""
    k = len(total)
    match factor:
        case Outer():
            g, p, q = factor.a.shape[2], factor.a.shape[3], factor.b.shape[4]
            matrix = total.reshape(k, g, p, q) if factor.flipped else total.reshape(k, g, q, p).transpose(2, 3)
            inputs = factor.a.permute(2, 0, 1, 3).flatten(1, 2)  # group (example position) into
            through = (inputs @ matrix).view(k, g, *factor.a.shape[:2], q)
            return torch.einsum("kgntq,nctgq->nck", through, factor.b)
        case Lookup():
            rows = total.reshape(k, shape[0], -1)[:, factor.ids.clamp(min=0)]
            return torch.einsum("kntq,nctq->nck", rows, factor.b)
        case Formed():
            return factor.flat @ total.reshape(k, -1).T
