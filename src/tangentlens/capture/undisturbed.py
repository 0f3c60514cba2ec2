"""Look at a model without leaving a trace: everything a forward pass can touch is put back, also after an error."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing
from torch import Tensor, nn

from tangentlens.errors import BadInput

_BatchCoupled = nn.modules.batchnorm._BatchNorm
_Dropout = nn.modules.dropout._DropoutNd


def eager(model: nn.Module) -> nn.Module:
    """The plain module inside torch.compile and data-parallel wrappers, whose graphs would hide operations."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def refuse_coupled_examples(model: nn.Module) -> None:
    """A kernel between two examples exists only if neither depends on who else is in the batch, or on chance."""
    for name, module in model.named_modules():
        batch_norm = isinstance(module, _BatchCoupled) and not isinstance(module, nn.modules.instancenorm._InstanceNorm)
        if batch_norm and (module.training or module.running_mean is None):
            raise BadInput(
                f"a per-example kernel needs batch norm with running statistics, got {name or 'the model'} "
                f"({type(module).__name__}) using the statistics of the batch, which couples the examples; "
                "call model.eval() before measuring (and keep track_running_stats=True)"
            )
        if isinstance(module, _Dropout) and module.training and module.p > 0:
            raise BadInput(
                f"a kernel needs a deterministic model, got active dropout in {name or 'the model'} (p={module.p}); "
                "call model.eval() before measuring"
            )


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run the body in eager and without autocast, and restore buffers, flags, gradients and random states.

    Inside, no parameter holds a gradient, and none is told of one: a backward pass of the model's own adds to nothing.
    """
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    flags = [(module, module.training) for module in model.modules()]
    parameters = [(p, p.detach(), p.grad) for p in model.parameters()]
    hooks = [
        (of_one, dict(of_one))
        for p in model.parameters()
        for of_one in (p._backward_hooks, p._post_accumulate_grad_hooks)
        if of_one
    ]
    python_state = random.getstate()
    numpy_random = sys.modules.get("numpy.random")  # where nobody has loaded it, nobody has seeded it
    numpy_state = numpy_random.get_state() if numpy_random is not None else None
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[d for d in devices if d is not None]))
        stack.enter_context(torch.inference_mode(False))
        for device_type in ("cpu", "cuda"):
            if device_type == "cpu" or torch.cuda.is_available():
                stack.enter_context(torch.autocast(device_type, enabled=False))
        if (
            "torch._dynamo" in sys.modules
        ):  # importing it costs a second; no compiled part can exist before it is imported
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_readable_checkpoints())
        try:
            for parameter, _, _ in parameters:
                parameter.grad = None
            for of_one, _ in hooks:
                of_one.clear()
            yield
        finally:
            for parameter, values, gradient in parameters:
                if parameter.data_ptr() != values.data_ptr():  # `parameter.data = ...` inside forward
                    parameter.data = values
                parameter.grad = gradient
            for of_one, held in hooks:
                of_one.update(held)
            random.setstate(python_state)
            if numpy_random is not None and numpy_state is not None:
                numpy_random.set_state(numpy_state)
            _restore(buffers, flags)


class _Readable:
    """Checkpointing that leaves its operations in the graph, in place of the reentrant kind, which hides them and the
    parameters they use in a backward pass of its own."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_random_state: bool, *arguments: Any) -> Any:
        return checkpointing.checkpoint(
            function, *arguments, use_reentrant=False, preserve_rng_state=preserve_random_state
        )


@contextmanager
def _readable_checkpoints() -> Iterator[None]:
    reentrant = checkpointing.CheckpointFunction
    checkpointing.CheckpointFunction = _Readable  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        checkpointing.CheckpointFunction = reentrant  # type: ignore[misc]


def _restore(
    buffers: list[tuple[nn.Module, str, Tensor | None, Tensor | None]], flags: list[tuple[nn.Module, bool]]
) -> None:
    for module, training in flags:
        module.training = training
    for module, name, buffer, value in buffers:
        module._buffers[name] = buffer
        if buffer is not None and value is not None and not _same(buffer, value):
            with torch.no_grad():
                buffer.copy_(value)


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and bool(torch.equal(left, right) or torch.allclose(left, right, 0, 0, True))
