"""A model's weights from somebody else's file, without running any of their code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from tangentlens.errors import BadInput

PLACES = ("state_dict", "model_state_dict", "model_state", "model", "module", "network", "net", "weights", "params")
"""Keys under which training scripts keep the model's state."""
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "network.")
"""Prefixes that DDP, torch.compile and Lightning put before every name."""


def state_in(file: Path) -> dict[str, Tensor]:
    """The model's state in a checkpoint, read as tensors only: nothing pickled is ever executed."""
    if file.suffix == ".safetensors":
        return _safetensors(file)
    try:
        kept = torch.load(file, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        if re.search(r"invalid load key|Unsupported operand|stack underflow|Ran out of input", str(error)):
            raise _unreadable(file, "not written by torch.save") from error
        # of torch's long message the name of the object is wanted, and not its advice to load it all the same
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise BadInput(
            f"{file} should hold tensors only, got Python objects{f' ({found[1]})' if found else ''}, which are not "
            "loaded because that could run their code; save it again with torch.save(model.state_dict(), ...)"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # reading another kind of file as a pickle ends in almost any of them
        raise _unreadable(file, _said(error)) from error
    return _state(kept, file)


def _safetensors(file: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except MemoryError:
        raise
    except Exception as error:
        raise _unreadable(file, _said(error)) from error


def _said(error: Exception) -> str:
    words = str(error).partition("\n")[0].partition(". ")[0]
    return words if isinstance(error, RuntimeError | EOFError | OSError) else f"{type(error).__name__}: {words}"


def _unreadable(file: Path, found: str) -> BadInput:
    return BadInput(
        f"{file} should be a checkpoint, got a damaged or another kind of file ({found}); "
        "copy or save it again, or leave it out"
    )


def _state(kept: Any, file: Path) -> dict[str, Tensor]:
    if isinstance(kept, Mapping):
        for place in PLACES:
            if isinstance(kept.get(place), Mapping):
                return _state(kept[place], file)
        state = {str(name): value for name, value in kept.items() if isinstance(value, Tensor)}
        if state:
            return state
    found = f"the keys {', '.join(map(str, list(kept)[:8]))}" if isinstance(kept, Mapping) else type(kept).__name__
    raise BadInput(f"{file} should hold a state dict, bare or under one of {', '.join(PLACES)}; it holds {found}")


def load_into(model: nn.Module, file: Path) -> None:
    """Put a checkpoint's weights into the model; every parameter must be there, with its shape."""
    wanted = model.state_dict()
    state = _unwrapped(state_in(file), wanted)
    missing = [name for name in wanted if name not in state and not _tied(name, model, state)]
    foreign = [name for name in state if name not in wanted]
    if missing or foreign:
        raise BadInput(
            f"{file} is of another model: it lacks {_some(missing)} and has in excess {_some(foreign)}; "
            "let the target function build the model these weights belong to"
        )
    for name, value in state.items():
        if value.shape != wanted[name].shape:
            raise BadInput(
                f"{file} is of another model: {name} has shape {tuple(value.shape)} there "
                f"and {tuple(wanted[name].shape)} in the target's model; "
                "let the target function build the model these weights belong to"
            )
    model.load_state_dict(state, strict=False)  # names and shapes were checked above; tied ones may be left out


def _unwrapped(state: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without the prefixes of wrappers, as long as the model knows none of them.

    What lies beside the wrapped model, such as the weights of a loss, is no part of it and is left out.
    """
    while not any(name in wanted for name in state):
        inside = ({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)} for prefix in WRAPPERS)
        largest = max(inside, key=len)
        if not largest:
            break
        state = largest
    return state


def _tied(name: str, model: nn.Module, state: Mapping[str, Tensor]) -> bool:
    """Whether a name left out of a checkpoint is a second name of a tensor that is in it."""
    everything = dict(model.named_parameters(remove_duplicate=False))
    mine = everything.get(name)
    return mine is not None and any(everything.get(other) is mine for other in state)


def _some(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
