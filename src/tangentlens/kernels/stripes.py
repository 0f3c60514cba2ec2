"""How a kernel is cut where it is written region by region: all parameters at once, as many rows held as memory allows.

Against a held block of S rows the columns pass by, a region at a time; every column is captured once per block it
meets, N^2 / 2 S captures for a symmetric kernel. S grows until those beyond the first N are a fraction of all other
work.
"""

from __future__ import annotations

import torch

from tangentlens.errors import RefusedForMemory
from tangentlens.kernels.memory import in_units
from tangentlens.kernels.passes import Pass, captured
from tangentlens.kernels.ways import Costs

_LEAN = 256 << 20
_REPEATED = 0.25  # captures done more than once, as a share of all other work
REGION_ROWS = 2048
"""Kernel rows of a region: 16 MB in float32, large enough for a disk and small beside what else is held."""


def region_rows(examples: int, outputs: int, groups: int, processes: int, kept: float, free: int) -> int:
    """Examples of a region, `kept` bytes each: smaller with many kernels at once or where two would not fit in half of
    the memory, and no process should be without one."""
    rows = max(1, int(REGION_ROWS / outputs / groups**0.5))
    rows = min(rows, max(1, int(free / 4 / max(kept, 1))))
    return min(rows, -(-examples // (2 * processes)) if processes > 1 else examples)


def striped_pass(
    costs: Costs, rows: int, columns: int | None, region: int, dtype: torch.dtype, device: torch.device, free: int,
    visitors: int = 1,
) -> Pass:  # fmt: skip
    """The leanest pass over all parameters that does not capture much more than once, for one process's rows.

    `visitors` other blocks of the same size are held beside the block itself where processes exchange them.
    """
    item, kept = torch.finfo(dtype).bits // 8, kept_bytes(costs, dtype)
    on_card = device.type == "cuda"
    ceiling = max(free // 2 if on_card else free // 4, 1)
    budget = ceiling if on_card else min(_LEAN, ceiling)
    once = rows + (columns or 0)
    needed = costs.effort + once * costs.capture_effort
    while True:
        block = _block(budget // 2, kept, rows, columns, region, visitors)
        repeated = captured(Pass((), block, 1), rows, columns) - once
        if repeated * costs.capture_effort <= _REPEATED * needed or budget >= ceiling:
            break
        budget = min(2 * budget, ceiling)
    if 2 * kept * region > free:
        raise RefusedForMemory(
            f"two regions of {region:,} examples need {in_units(2 * kept * region)} for their gradients, got "
            f"{in_units(free)} free on {device}; measure fewer outputs (outputs=) or parameters (parameters=), or "
            "never form the kernel: entk_product and top_spectrum"
        )
    chunk = max(1, min(1024, int(budget / 2 / max(_transient(costs, item), 1))))
    return Pass(tuple(costs.kept), block, chunk)


def striped_bytes(costs: Costs, one: Pass, region: int, width: int, dtype: torch.dtype) -> int:
    """What such a pass holds at most: its block and the region beside it, a capture, the region's numbers."""
    item = torch.finfo(dtype).bits // 8
    held = kept_bytes(costs, dtype) * (one.block + region) + one.chunk * _transient(costs, item)
    return int(held + 2 * item * (region * width) ** 2)


def _transient(costs: Costs, item: int) -> float:
    """What the capture of one example takes beside what is held of it."""
    return item * (4 * sum(costs.raw.values()) + max(costs.kept.values()) + costs.activations)


def kept_bytes(costs: Costs, dtype: torch.dtype) -> float:
    """What is held of one example."""
    return max(1.0, torch.finfo(dtype).bits // 8 * sum(costs.kept.values()))


def _block(room: float, kept: float, rows: int, columns: int | None, region: int, visitors: int) -> int:
    if kept * (rows + (columns or 0)) * visitors <= room:
        return max(1, rows)
    fitting = int(room / kept / visitors) - (region if visitors == 1 else 0)
    return max(region, min(fitting - fitting % region, -(-rows // region) * region))
