"""A layer whose weight is computed from other parameters is the same linear map as one that holds that weight.

Its kernel belongs to the other parameters; its inputs, output gradients and W do not, and are read from a copy.
"""

from __future__ import annotations

import copy

from torch import Tensor, nn
from torch.nn.utils import parametrize, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

_HOOKS = {WeightNorm: remove_weight_norm, SpectralNorm: remove_spectral_norm}


def with_plain_weights(model: nn.Module) -> nn.Module:
    """The model, or where weights are computed (weight norm and other parametrizations) a copy that holds them."""
    if not any(_computes_weights(module) for module in model.modules()):
        return model
    left_over = [v for m in model.modules() for v in vars(m).values() if isinstance(v, Tensor) and not v.is_leaf]
    model = copy.deepcopy(model, {id(value): value.detach().clone() for value in left_over})
    for module in list(model.modules()):
        for hook in _weight_hooks(module):
            _HOOKS[type(hook)](module, hook.name)
        if parametrize.is_parametrized(module):
            _hold_weights(module)
    return model


def _hold_weights(module: nn.Module) -> None:
    """Not by remove_parametrizations(), which edits the class that the copy shares with the user's module."""
    values = {name: getattr(module, name).detach() for name in module.parametrizations}  # type: ignore[union-attr]
    trained = any(p.requires_grad for p in module.parametrizations.parameters())  # type: ignore[union-attr]
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    for name, value in values.items():
        setattr(module, name, nn.Parameter(value, requires_grad=trained))


def _computes_weights(module: nn.Module) -> bool:
    return parametrize.is_parametrized(module) or bool(_weight_hooks(module))


def _weight_hooks(module: nn.Module) -> list[WeightNorm | SpectralNorm]:
    return [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, WeightNorm | SpectralNorm)]
