"""The lower rungs: the gradient of a parameter no rule serves, formed example by example. Slower, the same number."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from tangentlens.capture.factors import Formed
from tangentlens.capture.outputs import Outputs, selected_outputs
from tangentlens.capture.probe import Probe


@torch.enable_grad()  # under no_grad torch batches the backward pass of linalg.solve wrongly
def by_vmap(model: nn.Module, names: list[str], outputs: Outputs | None, probe: Probe) -> dict[str, Formed]:
    """Jacobians of single examples, vectorised; raises whatever vmap raises on models it cannot serve.

    On a copy: functional_call has been seen to replace parameters of modules reachable under two names.
    """
    model = copy.deepcopy(model)
    everything = dict(model.named_parameters())
    chosen = {name: everything[name].detach() for name in names}

    def one(parameters: dict[str, Tensor], inputs: Any) -> Tensor:
        single = Probe(tree_map(_alone, inputs), 1)
        raw = torch.func.functional_call(model, parameters, *_arguments(single))
        return selected_outputs(raw, outputs, 1)[0]

    batched = probe.inputs if isinstance(probe.inputs, Tensor | dict) else tuple(probe.inputs)
    axes = tree_map(lambda value: 0 if isinstance(value, Tensor) and value.ndim else None, batched)
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no batching rule
        jacobians = torch.func.vmap(torch.func.jacrev(one), in_dims=(None, axes), randomness="error")(chosen, batched)
    return {name: Formed(_in_real_numbers(jacobian.detach())) for name, jacobian in jacobians.items()}


@torch.enable_grad()
def by_loop(
    model: nn.Module, parameters: dict[str, Tensor], outputs: Outputs | None, probe: Probe
) -> dict[str, Formed]:
    """One example, one output, one backward pass at a time: runs wherever autograd does."""
    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for n in range(probe.length):
        single = probe.rows(n, n + 1)
        out = selected_outputs(single.copied().call(model), outputs, 1)[0]
        for value in out:
            if value.grad_fn is None:
                found: tuple[Tensor | None, ...] = (None,) * len(parameters)
            else:
                found = torch.autograd.grad(value, list(parameters.values()), retain_graph=True, allow_unused=True)
            for (name, parameter), gradient in zip(parameters.items(), found, strict=True):
                rows[name].append(torch.zeros_like(parameter) if gradient is None else gradient.to_dense())
        width = len(out)
    stacked = {name: torch.stack(gradients).detach().unflatten(0, (-1, width)) for name, gradients in rows.items()}
    return {name: Formed(_in_real_numbers(gradients)) for name, gradients in stacked.items()}


def _in_real_numbers(gradients: Tensor) -> Tensor:
    """A complex parameter is pairs of real ones, and autograd's gradient the derivatives by each."""
    return torch.view_as_real(gradients) if gradients.is_complex() else gradients


def _arguments(probe: Probe) -> tuple[Any, ...]:
    inputs = probe.inputs
    if isinstance(inputs, Tensor):
        return ((inputs,),)
    return ((), dict(inputs)) if isinstance(inputs, dict) else (tuple(inputs),)


def _alone(value: Any) -> Any:
    """vmap hands over examples without their axis; the model wants a batch of one (the clone: in-place models)."""
    return value[None].clone() if isinstance(value, Tensor) else value
