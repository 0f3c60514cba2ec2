"""Second moments of a layer's inputs and output gradients: PTK, its covariance, AGOP and NFM, from one capture.

For a layer z = W a with output gradients b (convolutions act on patches, repeated uses and positions are summed):

    ptk_covariance = sum b b^T     agop = W^T (sum b b^T) W     nfm = W^T W     (arXiv 2402.05271v4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.factors import Outer
from tangentlens.capture.measuring import Measurement, measuring
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs, Probe, probe
from tangentlens.capture.sources import Piece
from tangentlens.errors import BadInput
from tangentlens.kernels.passes import capture_chunk
from tangentlens.kernels.plan import sampled_costs


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
) -> dict[str, LayerMoments]:
    """Moments of every linear map of the model (or of `layers`), in one capture.

    A map is named after its module, or after its parameter where the module has several (`attention.in_proj_weight`,
    `lstm.weight_hh_l0`); parts of one parameter that are used separately are numbered. Cost: the capture, and
    N C T q^2 + N T p^2 per layer.
    """
    rows = probe(inputs)
    parameters = None if layers is None else [glob for layer in layers for glob in _parameters_of(model, layer)]
    with measuring(model, rows, outputs, parameters, dtype) as measurement:
        prepared = measurement.prepared(rows)
        totals = measurement.retried(lambda: _totals(measurement, prepared, chunk))
        return _named(measurement, totals)


def ptk_covariance(
    model: nn.Module, inputs: Inputs, layer: str, *, outputs: Outputs | None = None, dtype: torch.dtype | None = None
) -> Float[Tensor, "out out"]:
    """sum over examples, outputs and positions of b b^T at the layer's output; no mean is subtracted, no 1/n."""
    return _one(layer_moments(model, inputs, layers=[layer], outputs=outputs, dtype=dtype), layer).ptk_covariance


def agop(
    model: nn.Module, inputs: Inputs, layer: str, *, outputs: Outputs | None = None, dtype: torch.dtype | None = None
) -> Float[Tensor, "into into"]:
    """Average gradient outer product at the layer's input, as a sum: W^T (sum b b^T) W, exact by the chain rule."""
    return _one(layer_moments(model, inputs, layers=[layer], outputs=outputs, dtype=dtype), layer).agop


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
) -> Float[Tensor, "example output other output"]:
    """Pre-activation tangent kernel <d f_c(x_n) / d z, d f_d(x_m) / d z> of the layer's whole output z."""
    rows = probe(inputs)
    with measuring(model, rows, outputs, _parameters_of(model, layer), dtype) as measurement:
        prepared = measurement.prepared(rows)
        step = chunk or prepared.length

        def signals() -> Tensor:
            blocks = []
            for start in range(0, prepared.length, step):
                part = prepared.rows(start, min(start + step, prepared.length))
                pieces = measurement.pieces(part, list(measurement.wanted), every_position=True)
                blocks.append(torch.cat([f.b.flatten(2) for p in pieces.values() for f in _outers(p)], 2))
            return torch.cat(blocks)

        b = measurement.retried(signals)
        n, c, _ = b.shape
        flat = b.flatten(0, 1)
        return (flat @ flat.T).view(n, c, n, c)


@dataclass
class _Total:
    piece: Piece
    flipped: bool
    out: Tensor
    into: Tensor
    rows: int = 0


def _totals(measurement: Measurement, prepared: Probe, chunk: int | None) -> dict[str, _Total]:
    costs = sampled_costs(measurement, prepared, prepared, "full", True)
    step = chunk or capture_chunk(costs, measurement.dtype, measurement.device)
    totals: dict[str, _Total] = {}
    for start in range(0, prepared.length, step):
        part = prepared.rows(start, min(start + step, prepared.length))
        for key, piece in measurement.pieces(part, list(measurement.wanted), every_position=True).items():
            if len(piece.shape) < 2:
                continue
            for factor in _outers(piece):
                _add(totals, key, piece, factor)
    return totals


def _add(totals: dict[str, _Total], key: str, piece: Piece, factor: Outer) -> None:
    b = factor.b.permute(3, 0, 1, 2, 4).flatten(1, 3)  # group row out
    a = factor.a.permute(2, 0, 1, 3).flatten(1, 2)
    if key not in totals:
        groups, q, p = len(b), b.shape[2], a.shape[2]
        totals[key] = _Total(piece, factor.flipped, b.new_zeros(groups, q, q), a.new_zeros(groups, p, p))
    total = totals[key]
    if total.flipped != factor.flipped:  # used both ways (tied): the parameter's own (out, in) reading is kept
        a, b = b, a
    total.out += b.mT @ b
    total.into += a.mT @ a
    total.rows += b.shape[1]


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
