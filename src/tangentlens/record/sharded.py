"""A model whose parameters are spread over ranks, put together on the first rank to be measured."""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor import DTensor

from tangentlens.errors import BadInput


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP, in its first or second form, holds the parameters."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    wrapped = any(isinstance(module, FullyShardedDataParallel) for module in model.modules())
    return wrapped or any(isinstance(parameter, DTensor) for parameter in model.parameters())


def put_together(model: nn.Module, unsharded: nn.Module | None, first: bool) -> nn.Module:
    """The plain copy with the present weights, on the first rank; every rank takes part in gathering them."""
    if unsharded is None:
        raise BadInput(
            "the model's parameters are sharded over ranks and cannot be measured in place; pass unsharded=, "
            "the same model built once more without FSDP, into which the weights are gathered"
        )
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if first:
        unsharded.load_state_dict(state)
    return unsharded
