"""Whether a device asked for on the command line can be used here: said before anything is moved or written."""

from __future__ import annotations

import torch

from tangentlens.errors import BadInput, exit_status


def refuse_unusable_device(device: str) -> None:
    """A device torch does not know, was not built for, or cannot reach."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        if exit_status(error) is not None:  # out of memory has a status of its own
            raise
        found = str(error).strip().partition("\n")[0]
        raise BadInput(
            f"--device is one that torch can use here, got {device!r} ({found}); "
            "see those there are with: tangentlens doctor"
        ) from error
