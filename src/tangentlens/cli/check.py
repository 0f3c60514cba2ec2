"""``tangentlens check``: what measuring would cost, before it is paid."""

from __future__ import annotations

import sys

import torch

from tangentlens.cli.commands import Check
from tangentlens.cli.target import target
from tangentlens.errors import RefusedForMemory
from tangentlens.kernels import plan


def run(settings: Check) -> int:
    """Print the plan of the target's kernel; exit status 3 where it would be refused."""
    asked = target(settings.target, settings.device)
    chosen = plan(
        asked.model,
        asked.inputs,
        outputs=asked.outputs,
        parameters=list(settings.parameters) or None,
        dtype=getattr(torch, settings.dtype) if settings.dtype else None,
        reduction="full" if settings.full or settings.modes is not None else "mean",
        modes=settings.modes,
    )
    print(chosen)
    if not chosen.fits:
        print(
            "It would be refused: measure fewer examples or outputs, average over outputs, "
            "or never form the kernel (entk_product, top_spectrum).",
            file=sys.stderr,
        )
        return RefusedForMemory.exit_status
    return 0
