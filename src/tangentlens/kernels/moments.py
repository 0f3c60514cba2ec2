"""Second moments of a layer's inputs and output gradients: PTK, its covariance, AGOP and NFM, from one capture.

For a layer z = W a with output gradients b (convolutions act on patches, repeated uses and positions are summed):

    ptk_covariance = sum b b^T     agop = W^T (sum b b^T) W     nfm = W^T W     (arXiv 2402.05271v4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.factors import Outer
from tangentlens.capture.measuring import Measurement, measuring
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs, Probe, probe
from tangentlens.capture.sources import Piece
from tangentlens.distributed import Job, Ranks, joined
from tangentlens.errors import BadInput
from tangentlens.kernels.agreed import check_alike, in_agreement, read_alike
from tangentlens.kernels.passes import capture_chunk
from tangentlens.kernels.plan import sampled_costs
from tangentlens.kernels.separable import shared_signal


@dataclass(frozen=True)
class LayerMoments:
    """One linear map and the moments of both its sides; sums over `rows` examples, outputs and positions."""

    weight: Float[Tensor, "out into"]
    ptk_covariance: Float[Tensor, "out out"]
    input_moment: Float[Tensor, "into into"]
    rows: int

    @property
    def agop(self) -> Float[Tensor, "into into"]:
        return self.weight.T @ self.ptk_covariance @ self.weight

    @property
    def nfm(self) -> Float[Tensor, "into into"]:
        return self.weight.T @ self.weight


@torch.no_grad()
def layer_moments(
    model: nn.Module,
    inputs: Inputs,
    *,
    layers: Sequence[str] | None = None,
    outputs: Outputs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    ranks: Ranks = None,
) -> dict[str, LayerMoments]:
    """Moments of every linear map of the model (or of `layers`), in one capture.

    A map is named after its module, or after its parameter where the module has several (`attention.in_proj_weight`,
    `lstm.weight_hh_l0`); parts of one parameter that are used separately are numbered. Cost: the capture, and
    N C T q^2 + N T p^2 per layer.
    """
    rows = probe(inputs)
    parameters = None if layers is None else [glob for layer in layers for glob in _parameters_of(model, layer)]
    with joined(ranks) as job, measuring(model, rows, outputs, parameters, dtype) as measurement:
        prepared = measurement.prepared(rows)
        check_alike(job, measurement, prepared)
        totals = in_agreement(job, measurement, lambda: _totals(measurement, prepared, chunk, job))
        return _named(measurement, _summed(job, totals, measurement.device))


def ptk_covariance(
    model: nn.Module, inputs: Inputs, layer: str, *, outputs: Outputs | None = None, dtype: torch.dtype | None = None,
    ranks: Ranks = None,
) -> Float[Tensor, "out out"]:  # fmt: skip
    """sum over examples, outputs and positions of b b^T at the layer's output; no mean is subtracted, no 1/n."""
    found = layer_moments(model, inputs, layers=[layer], outputs=outputs, dtype=dtype, ranks=ranks)
    return _one(found, layer).ptk_covariance


def agop(
    model: nn.Module, inputs: Inputs, layer: str, *, outputs: Outputs | None = None, dtype: torch.dtype | None = None,
    ranks: Ranks = None,
) -> Float[Tensor, "into into"]:  # fmt: skip
    """Average gradient outer product at the layer's input, as a sum: W^T (sum b b^T) W, exact by the chain rule."""
    found = layer_moments(model, inputs, layers=[layer], outputs=outputs, dtype=dtype, ranks=ranks)
    return _one(found, layer).agop


def nfm(model: nn.Module, layer: str) -> Float[Tensor, "into into"]:
    """Neural feature matrix W^T W of a linear layer, a convolution (over patches), or a parameter used as (out, in)."""
    names = _parameters_of(model, layer)
    parameter = dict(model.named_parameters())[names[0]].detach()
    module = model.get_submodule(layer) if layer in dict(model.named_modules()) else None
    if type(module).__name__ == "Conv1D":  # Hugging Face's GPT-2 stores (in, out)
        parameter = parameter.T
    if isinstance(module, nn.modules.conv._ConvNd):
        parameter = _convolution_matrix(module, parameter)
    matrix = parameter.flatten(1)
    return matrix.T @ matrix


@torch.no_grad()
def ptk(
    model: nn.Module,
    inputs: Inputs,
    layer: str,
    *,
    outputs: Outputs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    ranks: Ranks = None,
) -> Float[Tensor, "example output other output"]:
    """Pre-activation tangent kernel <d f_c(x_n) / d z, d f_d(x_m) / d z> of the layer's whole output z."""
    rows = probe(inputs)
    names = _parameters_of(model, layer)
    with joined(ranks) as job, measuring(model, rows, outputs, names, dtype) as measurement:
        prepared = measurement.prepared(rows)
        check_alike(job, measurement, prepared)
        shares = job.shares(prepared.length)
        start, stop = shares[job.rank]
        step = chunk or max(1, stop - start)

        def signals() -> Tensor | None:
            blocks = []
            for begin in range(start, stop, step):
                part = prepared.rows(begin, min(begin + step, stop))
                pieces = measurement.pieces(part, list(measurement.wanted), every_position=True)
                blocks.append(torch.cat([f.b.flatten(2) for p in pieces.values() for f in _outers(p)], 2))
            read_alike(job, measurement)
            return torch.cat(blocks) if blocks else None

        mine = in_agreement(job, measurement, signals)
        c, size = next(width for width in job.objects(None if mine is None else mine.shape[1:]) if width)
        none = torch.zeros(0, c, size, dtype=measurement.dtype, device=measurement.device)
        b = job.rows(none if mine is None else mine, shares)
        flat, (n, c, _) = b.flatten(0, 1), b.shape
        own = flat[start * c : stop * c] @ flat.T
        return job.rows(own.view(stop - start, c, n, c), shares)


@dataclass
class _Total:
    piece: Piece
    flipped: bool
    out: Tensor
    into: Tensor
    rows: int = 0


def _totals(measurement: Measurement, prepared: Probe, chunk: int | None, job: Job) -> dict[str, _Total]:
    """Over this process's own rows."""
    costs = sampled_costs(measurement, prepared, prepared, "full", True)
    step = chunk or capture_chunk(costs, measurement.dtype, measurement.device)
    totals: dict[str, _Total] = {}
    share = job.shares(prepared.length)[job.rank]
    for start in range(*share, step):
        part = prepared.rows(start, min(start + step, share[1]))
        for key, piece in measurement.pieces(part, list(measurement.wanted), every_position=True).items():
            if len(piece.shape) < 2:
                continue
            for factor in _outers(piece):
                _add(totals, key, piece, factor)
    read_alike(job, measurement)
    return totals


def _summed(job: Job, totals: dict[str, _Total], device: torch.device) -> dict[str, _Total]:
    """The sums over all rows; a rank that has none takes its place from those that have."""
    if job.size == 1:
        return totals
    heads = {key: (replace(t.piece, factors=[]), t.flipped, t.rows) for key, t in totals.items()}
    seen = job.objects(heads)
    sides = [job.sums({key: getattr(total, side) for key, total in totals.items()}, device) for side in ("out", "into")]
    summed = {}
    for key in dict.fromkeys(key for other in seen for key in other):
        piece, flipped, _ = next(other[key] for other in seen if key in other)
        rows = sum(other[key][2] for other in seen if key in other)
        summed[key] = _Total(piece, flipped, sides[0][key], sides[1][key], rows)
    return summed


def _add(totals: dict[str, _Total], key: str, piece: Piece, factor: Outer) -> None:
    n, c, t, groups, q = factor.b.shape
    a = factor.a.permute(2, 0, 1, 3).flatten(1, 2)  # group row into
    into, out = a.mT @ a, _output_moment(factor.b)
    if key not in totals:
        totals[key] = _Total(piece, factor.flipped, torch.zeros_like(out), torch.zeros_like(into))
    total = totals[key]
    both_ways = total.flipped != factor.flipped  # tied: the parameter's own (out, in) reading is kept
    total.out += into if both_ways else out
    total.into += out if both_ways else into
    total.rows += n * t if both_ways else n * c * t


def _output_moment(b: Float[Tensor, "example output position group out"]) -> Float[Tensor, "group out out"]:
    """sum b b^T; where the outputs share one signal, b = w s, it is (sum w w^T) * (sum s s^T): C times less work."""
    if b.shape[3] == 1 and (found := shared_signal(b[:, :, :, 0])) is not None:
        weight, signal = found
        flat = signal.flatten(0, 1)
        return ((weight.mT @ weight) * (flat.mT @ flat))[None]
    rows = b.permute(3, 0, 1, 2, 4).flatten(1, 3)
    return rows.mT @ rows


def _outers(piece: Piece) -> list[Outer]:
    return [f for f in piece.factors if isinstance(f, Outer)]


def _named(measurement: Measurement, totals: dict[str, _Total]) -> dict[str, LayerMoments]:
    maps: dict[str, list[_Total]] = {}
    for total in totals.values():
        maps.setdefault(total.piece.name, []).append(total)
    named = {}
    for parameter, parts in maps.items():
        name = parameter.removesuffix(".weight") if parameter.endswith(".weight") else parameter
        for number, total in enumerate(sorted(parts, key=_place)):
            weight = total.piece.values(measurement.wanted[parameter]).detach()
            matrix = _grouped(weight, total)
            moments = LayerMoments(matrix, _block_diagonal(total.out), _block_diagonal(total.into), total.rows)
            named[name if len(parts) == 1 else f"{name}[{number}]"] = moments
    return named


def _grouped(weight: Tensor, total: _Total) -> Float[Tensor, "out into"]:
    groups, q, p = len(total.out), total.out.shape[1], total.into.shape[1]
    blocks = weight.reshape(groups, p, q).mT if total.flipped else weight.reshape(groups, q, p)
    return _block_diagonal(blocks)


def _place(total: _Total) -> int:
    return 0 if total.piece.index is None else int(total.piece.index[0])


def _block_diagonal(blocks: Float[Tensor, "group ..."]) -> Tensor:
    return blocks[0] if len(blocks) == 1 else torch.block_diag(*blocks)


def _convolution_matrix(module: nn.modules.conv._ConvNd, weight: Tensor) -> Tensor:
    if module.transposed:
        return _block_diagonal(weight.flatten(1).unflatten(0, (module.groups, -1)).mT)
    return _block_diagonal(weight.flatten(1).unflatten(0, (module.groups, -1)))


def _parameters_of(model: nn.Module, layer: str) -> list[str]:
    """A layer is a module with a weight, or a parameter by its own name."""
    named = dict(model.named_parameters())
    if layer in named:
        return [layer]
    weight = f"{layer}.weight" if layer else "weight"
    if weight in named:
        return [weight]
    owned = [n for n, p in named.items() if n.rpartition(".")[0] == layer and p.ndim >= 2]
    if layer in dict(model.named_modules()) and owned:
        return owned
    known = [name.removesuffix(".weight") for name, p in named.items() if p.ndim >= 2]
    raise BadInput(
        f"a layer must be a module with a weight matrix or a parameter's name, got {layer!r}; "
        f"there are {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}"
    )


def _one(found: dict[str, LayerMoments], layer: str) -> LayerMoments:
    if len(found) != 1:
        names = ", ".join(found) or "none (it is not used as a linear map)"
        raise BadInput(f"one linear map was asked for, got {layer!r} with {names}; name one, or use layer_moments")
    return next(iter(found.values()))
