"""Forward features: what a layer is given, one row per example, beside the model's outputs.

The head is found by itself. Reading changes nothing: hooks are removed, flags, buffers and random states are put back,
also after an error; the model must be deterministic (in eval mode), as for a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from tangentlens.capture.casts import float64_throughout
from tangentlens.capture.outputs import Outputs, selected_outputs
from tangentlens.capture.probe import Inputs, Probe, probe, tensors_in
from tangentlens.capture.undisturbed import eager, refuse_coupled_examples, undisturbed
from tangentlens.errors import BadInput
from tangentlens.kernels.head import Call, LinearCalls, head_call

Places = Literal["flatten", "mean"]


@dataclass(frozen=True)
class Features:
    """The input of one layer and the model's outputs, row by row; `reading` says how rows came about.

    At a head, `outputs = values @ weight.T + bias` unless `reading` says that something follows it. `weight` and
    `bias` are None for other layers.
    """

    values: Float[Tensor, "example unit"]
    outputs: Float[Tensor, "example output"]
    layer: str
    weight: Float[Tensor, "label unit"] | None
    bias: Float[Tensor, "label"] | None
    reading: str


def features(
    model: nn.Module,
    inputs: Inputs,
    layer: str | None = None,
    *,
    outputs: Outputs | None = None,
    places: Places = "flatten",
) -> Features:
    """The forward feature map Phi of arXiv 2410.04264: the input of the head, or of any layer of `named_modules()`.

    The head is the last linear map (a module, a functional call, a product with a parameter, a convolution) on the
    way to the outputs. Where it works at several places of an example, features are taken where the outputs look: at
    the one place (last token), averaged as the outputs average (pooled), or every place as a row of its own when each
    has its own outputs. Another layer with places is flattened or, with places="mean", averaged over them. Cost: one
    forward pass.
    """
    return next(stream_features(model, [inputs], layer, outputs=outputs, places=places))


def stream_features(
    model: nn.Module, batches: Iterable[Inputs], layer: str | None = None, *, outputs: Outputs | None = None,
    places: Places = "flatten",
) -> Iterator[Features]:  # fmt: skip
    """`features` of one batch after another, the head found once; at most one batch is held at a time."""
    plain = eager(model)
    refuse_coupled_examples(plain)
    if layer is not None and layer not in dict(plain.named_modules()):
        known = ", ".join(name for name, _ in plain.named_modules() if name)
        raise BadInput(f"layer= is a module of the model, got {layer!r}; one of: {known}")
    number: int | None = None
    for inputs in batches:
        examples = probe(inputs)
        with undisturbed(plain), float64_throughout(plain):
            examples = _outside_inference_mode(examples)
            if layer is not None:
                found = _at_layer(plain, examples, layer, outputs, places)
            else:
                if number is None:
                    number = head_call(plain, examples.rows(0, 2), outputs)
                found = _at_head(plain, examples, number, outputs)
        yield found


def _outside_inference_mode(examples: Probe) -> Probe:
    """Copies of tensors made under inference_mode, which no graph may hold."""
    if any(tensor.is_inference() for tensor in tensors_in(examples.inputs).values()):
        return examples.chosen(list(range(examples.length)))
    return examples


def _at_layer(model: nn.Module, examples: Probe, layer: str, outputs: Outputs | None, places: Places) -> Features:
    seen: list[Tensor] = []

    def note(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        seen.extend([item for item in (*args, *kwargs.values()) if isinstance(item, Tensor)][:1])

    module = model.get_submodule(layer)
    hook = module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        with torch.no_grad():
            chosen = selected_outputs(examples.call(model), outputs, examples.length)
    finally:
        hook.remove()
    if len(seen) != 1 or len(seen[0]) != examples.length:
        got = f"{len(seen)} calls" if len(seen) != 1 else f"an input of shape {tuple(seen[0].shape)}"
        raise BadInput(
            f"{layer} must be called once, with the {examples.length} examples on the first axis of its input, "
            f"got {got}; read a layer around it"
        )
    values = seen[0].detach()
    what = "x".join(map(str, values.shape[1:]))
    if values.ndim > 2 and places == "mean":
        # images and signals carry their channels on axis 1, sequences carry their units on the last
        images = values.ndim > 3 or isinstance(module, _CHANNELS_FIRST)
        values = values.flatten(2).mean(2) if images else values.mean(1)
        reading = f"input of {layer}, {what} averaged over its places"
    else:
        reading = f"input of {layer}" + (f", {what} flattened" if values.ndim > 2 else "")
    return Features(values.reshape(len(values), -1), chosen.detach(), layer, None, None, reading)


_CHANNELS_FIRST = (nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d)


def _at_head(model: nn.Module, examples: Probe, number: int, outputs: Outputs | None) -> Features:
    with torch.no_grad(), LinearCalls(model, head=number) as seen:
        chosen = selected_outputs(examples.call(model), outputs, examples.length)
    if len(seen.calls) != 1:
        raise BadInput("this batch did not reach the head the first one came from; name the layer with layer=")
    (call,) = seen.calls
    inputs, results = call.map.inputs(), call.map.results(call.result)
    weight, bias = call.map.weight(), call.map.bias
    owner, strength = _rows_behind(call, chosen, examples.length)
    name, chosen = call.name, chosen.detach()
    counts = torch.bincount(owner[strength > 0], minlength=examples.length)
    if bool((counts != counts[0]).any()) or int(counts[0]) == 0:
        return _averaged(inputs, owner, strength, chosen, call, "as the outputs weigh them")
    order = torch.argsort(owner + (strength == 0) * examples.length, stable=True)[: int(counts.sum())]
    values, many = inputs[order], int(counts[0])
    if many == 1:
        reading = f"input of {name}" + (" at the place the outputs look at" if len(inputs) > examples.length else "")
    elif results.numel() == chosen.numel() and many * examples.length == len(inputs):
        chosen, reading = results[order], f"input of {name}, each of its {many} places a row"
    else:
        return _averaged(inputs, owner, strength, chosen, call, f"over {many} places as the outputs do")
    return Features(values, chosen, name, weight, bias, reading + _what_follows(values, chosen, call))


def _averaged(inputs: Tensor, owner: Tensor, strength: Tensor, chosen: Tensor, call: Call, how: str) -> Features:
    values = torch.zeros(len(chosen), inputs.shape[1], dtype=inputs.dtype, device=inputs.device)
    total = torch.zeros(len(chosen), dtype=inputs.dtype, device=inputs.device).index_add_(0, owner, strength)
    values.index_add_(0, owner, inputs * (strength / total.clamp_min(torch.finfo(total.dtype).tiny)[owner])[:, None])
    reading = f"input of {call.name}, averaged {how}" + _what_follows(values, chosen, call)
    return Features(values, chosen, call.name, call.map.weight(), call.map.bias, reading)


def _what_follows(values: Tensor, chosen: Tensor, call: Call) -> str:
    result = values @ call.map.weight().T + (0 if call.map.bias is None else call.map.bias)
    same = result.shape == chosen.shape
    same = same and torch.allclose(result, chosen, rtol=1e-3, atol=1e-4 * float(chosen.abs().max()))
    return "" if same else "; the outputs are not its result itself, something follows or selects"


def _rows_behind(call: Call, chosen: Tensor, examples: int) -> tuple[Tensor, Tensor]:
    """For every row of the head's result: the example whose outputs it reaches, and how strongly."""
    rows = call.map.results(call.result)
    if len(rows) == examples:
        return torch.arange(examples, device=rows.device), torch.ones(examples, dtype=rows.dtype, device=rows.device)
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(chosen.shape, generator=generator).to(chosen)
    # every example's outputs are weighted by a number of its own, which its rows then show
    label = torch.linspace(1, 2, examples, dtype=chosen.dtype, device=chosen.device)
    edge = GradientEdge(call.node, 0)
    plain, labelled = (
        call.map.results(torch.autograd.grad(chosen, (edge,), weighted, retain_graph=True)[0])
        for weighted in (direction, direction * label[:, None])
    )
    size = plain.square().sum(1)
    if chosen.dtype in (torch.float16, torch.bfloat16):  # too coarse to tell labels apart; examples come first
        return torch.arange(len(rows), device=rows.device) * examples // len(rows), size.sqrt()
    ratio = (plain * labelled).sum(1) / size.clamp_min(torch.finfo(size.dtype).tiny)
    owner = ((ratio - 1) * max(examples - 1, 1)).round().long().clamp(0, examples - 1)
    return owner, size.sqrt()
