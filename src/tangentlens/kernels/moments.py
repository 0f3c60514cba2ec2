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
from tangentlens.capture.undisturbed import eager, undisturbed
from tangentlens.distributed import Job, Ranks, joined
from tangentlens.errors import BadInput, NonFiniteKernel
from tangentlens.kernels.agreed import check_alike, in_agreement, read_alike
from tangentlens.kernels.nonfinite import first_nonfinite
from tangentlens.kernels.passes import capture_chunk, checked_chunk
from tangentlens.kernels.plain_weights import with_plain_weights
from tangentlens.kernels.plan import sampled_costs
from tangentlens.kernels.separable import shared_signal


@dataclass(frozen=True)
class Layout:
    """Where a linear map lies in its parameter: which entries, in how many blocks, and which way round."""

    parameter: str
    piece: Piece
    groups: int
    out: int
    into: int
    flipped: bool

    def matrix(self, tensor: Tensor) -> Float[Tensor, "out into"]:
        """The map's part of a tensor shaped like the parameter (the parameter, its gradient), as (out, into)."""
        values = self.piece.values(tensor)
        if self.flipped:
            return _block_diagonal(values.reshape(self.groups, self.into, self.out).mT)
        return _block_diagonal(values.reshape(self.groups, self.out, self.into))


@dataclass(frozen=True)
class LayerMoments:
    """One linear map and the moments of both its sides; sums over `rows` examples, outputs and positions.

    `weight` is a copy: it stays what it was when the network trains on.
    """

    weight: Float[Tensor, "out into"]
    ptk_covariance: Float[Tensor, "out out"]
    input_moment: Float[Tensor, "into into"]
    rows: int
    layout: Layout | None = None

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
    """Moments of every linear map of the model (or of `layers`), in one capture. Maps that no rule reads from (a, b)
    are not among them: asked for by name they are an error.

    A map is named after its module, or after its parameter where the module has several (`attention.in_proj_weight`,
    `lstm.weight_hh_l0`); parts of one parameter that are used separately are numbered. Cost: the capture, and
    N C T q^2 + N T p^2 per layer.
    """
    checked_chunk(chunk)
    rows, model = probe(inputs), _readable(model)
    asked = None if layers is None else {layer: _parameters_of(model, layer) for layer in layers}
    parameters = None if asked is None else [name for names in asked.values() for name in names]
    with joined(ranks) as job, measuring(model, rows, outputs, parameters, dtype) as measurement:
        prepared = measurement.prepared(rows)
        check_alike(job, measurement, prepared)
        totals = in_agreement(job, measurement, lambda: _totals(measurement, prepared, chunk, job))
        found = _summed(job, totals, measurement.device)
        if not all(bool(torch.isfinite(t.out).all() & torch.isfinite(t.into).all()) for t in found.values()):
            raise NonFiniteKernel(first_nonfinite(measurement, [prepared]))
        for names in () if asked is None else asked.values():
            _refuse_missing(measurement, names, {total.piece.name for total in found.values()})
        return _named(measurement, found)


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


def nfm(
    model: nn.Module, layer: str, inputs: Inputs | None = None, *, outputs: Outputs | None = None
) -> Float[Tensor, "into into"]:
    """Neural feature matrix W^T W of a linear layer or a convolution (over patches).

    Which side of any other parameter the data enters only a forward pass shows: it needs `inputs`.
    """
    if inputs is not None:
        return _one(layer_moments(model, inputs, layers=[layer], outputs=outputs), layer).nfm
    model = _readable(model)
    names = _parameters_of(model, layer)
    module = model.get_submodule(layer if layer in dict(model.named_modules()) else layer.rpartition(".")[0])
    if len(names) > 1 or not (isinstance(module, _OUT_FIRST) or _is_conv1d(module)):
        raise BadInput(
            f"W^T W needs one weight of a known layer, got {', '.join(names)} of {type(module).__name__}; "
            "name one, and pass inputs to see on which side of it the data enters"
        )
    parameter = model.get_parameter(names[0]).detach()
    if _is_conv1d(module):
        parameter = parameter.T
    if isinstance(module, nn.modules.conv._ConvNd):
        parameter = _convolution_matrix(module, parameter)
    matrix = parameter.flatten(1)
    return matrix.T @ matrix


_OUT_FIRST = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


def _is_conv1d(module: nn.Module) -> bool:
    """Hugging Face's GPT-2 stores (in, out)."""
    return type(module).__name__ == "Conv1D"


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
    checked_chunk(chunk)
    rows, model = probe(inputs), _readable(model)
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
                _refuse_missing(measurement, names, {p.name for p in pieces.values() if _outers(p)})
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


def _readable(model: nn.Module) -> nn.Module:
    plain = eager(model) if isinstance(model, nn.Module) else model
    with undisturbed(plain):
        return with_plain_weights(plain)


def _refuse_missing(measurement: Measurement, names: Sequence[str], read: set[str]) -> None:
    """Of the parameters of a layer that was asked for, one must have been read as a linear map."""
    if not read.intersection(names):
        why = measurement.reader.unreadable.get(names[0], "it is not used as a linear map")
        raise BadInput(
            f"a layer's moments need a linear map whose input and output gradient can be read, got {names[0]}: {why}; "
            "name another layer, or measure its share of the kernel with entk_by_layer"
        )


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
            sides = (len(total.out), total.out.shape[1], total.into.shape[1])
            layout = Layout(parameter, replace(total.piece, factors=[]), *sides, total.flipped)
            matrix = layout.matrix(measurement.wanted[parameter]).detach().clone()
            moments = LayerMoments(matrix, _block_diagonal(total.out), _block_diagonal(total.into), total.rows, layout)
            named[name if len(parts) == 1 else f"{name}[{number}]"] = moments
    return named


def _place(total: _Total) -> int:
    return 0 if total.piece.index is None else int(total.piece.index[0])


def _block_diagonal(blocks: Float[Tensor, "group ..."]) -> Tensor:
    return blocks[0] if len(blocks) == 1 else torch.block_diag(*blocks)


def _convolution_matrix(module: nn.modules.conv._ConvNd, weight: Tensor) -> Tensor:
    if module.transposed:
        return _block_diagonal(weight.flatten(1).unflatten(0, (module.groups, -1)).mT)
    return _block_diagonal(weight.flatten(1).unflatten(0, (module.groups, -1)))


def _parameters_of(model: nn.Module, layer: str) -> list[str]:
    """A layer is a module with a weight, or a parameter by a name of its own; a shared one goes by its first name."""
    first = {id(p): name for name, p in model.named_parameters()}
    named = {name: (p, first[id(p)]) for name, p in model.named_parameters(remove_duplicate=False)}
    weight = f"{layer}.weight" if layer else "weight"
    for name in (layer, weight):
        if name in named:
            return [named[name][1]]
    owned = [own for n, (p, own) in named.items() if n.rpartition(".")[0] == layer and p.ndim >= 2]
    if layer in dict(model.named_modules()) and owned:
        return owned
    known = [name.removesuffix(".weight") for name, (p, _) in named.items() if p.ndim >= 2]
    raise BadInput(
        f"a layer must be a module with a weight matrix or a parameter's name, got {layer!r}; "
        f"there are {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}"
    )


def _one(found: dict[str, LayerMoments], layer: str) -> LayerMoments:
    if len(found) != 1:
        names = ", ".join(found) or "none (it is not used as a linear map)"
        raise BadInput(f"one linear map was asked for, got {layer!r} with {names}; name one, or use layer_moments")
    return next(iter(found.values()))
