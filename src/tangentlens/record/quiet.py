"""Looking without touching: whatever a measure does, the training run goes on as if it had not been looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from tangentlens.capture.undisturbed import eager, undisturbed


@contextmanager
def observed(model: nn.Module) -> Iterator[nn.Module]:
    """The eager model in eval mode, without autocast; modes, gradients, buffers and random states are put back."""
    plain = eager(model)
    gradients = [(parameter, parameter.grad) for parameter in plain.parameters()]
    versions = [(name, parameter, parameter._version) for name, parameter in plain.named_parameters()]
    with undisturbed(plain):
        try:
            for module in plain.modules():
                module.training = False  # not .eval(), which models override with work of their own
            for parameter, _ in gradients:
                parameter.grad = None  # a measure that calls backward() must not add to the run's gradients
            yield plain
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
    touched = [name for name, parameter, version in versions if parameter._version != version]
    if touched:
        raise RuntimeError(
            f"a measure wrote into {', '.join(touched[:4])} of the model being trained; let it work on a copy"
        )
