"""Everything an observer could disturb, in one comparable value."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor, nn

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)


def bits(tensor: Tensor | None) -> Any:
    """Value and metadata; NaN equals itself here."""
    if tensor is None:
        return None
    dense = tensor.detach().to_dense().contiguous().cpu()
    return tuple(dense.shape), tensor.dtype, str(tensor.device), dense.reshape(-1).view(torch.uint8).numpy().tobytes()


def of_parameter(parameter: nn.Parameter) -> tuple:
    hooks = dict(parameter._backward_hooks or {}), dict(getattr(parameter, "_post_accumulate_grad_hooks", None) or {})
    own = id(parameter), parameter._version, parameter.data_ptr(), bits(parameter), parameter.requires_grad
    return own, id(parameter.grad) if parameter.grad is not None else None, bits(parameter.grad), hooks


def of_module(module: nn.Module) -> tuple:
    return id(module), type(module), module.training, *(dict(getattr(module, kind, {})) for kind in HOOKS)


def of_input(inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return {name: of_input(value) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(of_input(value) for value in inputs)
    if isinstance(inputs, Tensor):
        return (
            id(inputs),
            inputs._version,
            inputs.requires_grad,
            bits(inputs),
            bits(inputs.grad if inputs.is_leaf else None),
        )
    return inputs


def state(model: nn.Module, inputs: Any) -> dict[str, Any]:
    """Without Python's own random state: the type checks of the test run draw from it; it has a test of its own."""
    algorithm, keys, *rest = numpy.random.get_state()
    return {
        "parameters": {name: of_parameter(p) for name, p in model.named_parameters(remove_duplicate=False)},
        "buffers": {name: bits(buffer) for name, buffer in model.named_buffers(remove_duplicate=False)},
        "modules": {name: of_module(module) for name, module in model.named_modules(remove_duplicate=False)},
        "inputs": of_input(inputs),
        "torch's random state": bits(torch.random.get_rng_state()),
        "numpy's random state": (algorithm, keys.tobytes(), *rest),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "defaults": (torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()),
        "attention kernels": (
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
            torch.backends.cuda.cudnn_sdp_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
        ),
        "precision": (torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()),
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of what changed, one level deep, so that a failure can be read."""
    found = []
    for what in before:
        if before[what] != after[what]:
            if isinstance(before[what], dict):
                names = before[what].keys() | after[what].keys()
                found += [f"{what}: {name}" for name in names if before[what].get(name) != after[what].get(name)]
            else:
                found.append(what)
    return found
