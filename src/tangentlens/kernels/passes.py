"""In what order, and in how much memory: which parameters are captured together, and how many examples are held.

Memory is spent only where it saves work. Gradients of a few parameters for all examples are held at once; a parameter
that does not fit alone is taken over pairs of blocks of examples, captured again for every pair. The smallest budget
is taken whose repeated captures stay a fraction of the work that must be done anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tangentlens.errors import BadInput
from tangentlens.kernels.memory import free_bytes
from tangentlens.kernels.ways import Costs

_LEAN = 256 << 20
_TRANSIENT = (
    64 << 20
)  # what one capture may take beside what is held; a quarter of that or the weights' own size if more
_REPEATED = 0.05  # captures done more than once, as a share of all other work


@dataclass(frozen=True)
class Pass:
    """Parameters captured together; `block` examples held at once, `chunk` of them captured at once."""

    names: tuple[str, ...]
    block: int
    chunk: int


@dataclass(frozen=True)
class Passes:
    passes: tuple[Pass, ...]
    budget: int


def chosen_passes(
    costs: Costs, rows: int, columns: int | None, dtype: torch.dtype, device: torch.device, free: int | None = None
) -> Passes:
    """The leanest order that does not capture much more than once; `free` beside the kernel itself, or where the
    device's memory is shared. A card is there for this alone: most of it is taken at once."""
    free = free_bytes(device) if free is None else free
    on_card = device.type == "cuda"
    ceiling = max(3 * free // 4 if on_card else free // 4, 1)
    budget = ceiling if on_card else min(_LEAN, ceiling)
    once = rows + (columns or 0)
    item = torch.finfo(dtype).bits // 8
    needed = costs.effort + once * costs.capture_effort
    while True:
        least = budget // 4 if on_card else max(min(_TRANSIENT, budget // 2), min(item * costs.weights, ceiling // 2))
        passes = _within(costs, rows, columns, budget, least, item)
        taken = sum(captured(p, rows, columns) for p in passes)
        if (taken - once) * costs.capture_effort <= _REPEATED * needed or budget >= ceiling:
            return Passes(tuple(passes), budget)
        budget = min(2 * budget, ceiling)


def checked_chunk(chunk: int | None) -> int | None:
    """`chunk=` as the user gave it, refused where it counts no examples."""
    if chunk is not None and not isinstance(chunk, int):
        raise TypeError(f"chunk= counts the examples captured at once, got {chunk!r}; pass a whole number, or nothing")
    if chunk is not None and chunk < 1:
        raise BadInput(f"chunk= counts the examples captured at once, got {chunk}; pass 1 or more, or nothing")
    return chunk


def capture_chunk(costs: Costs, dtype: torch.dtype, device: torch.device) -> int:
    """Examples captured at once when every parameter is read and nothing is formed."""
    room = free_bytes(device) // 8 if device.type == "cuda" else min(_LEAN, free_bytes(device) // 4) // 2
    item = torch.finfo(dtype).bits // 8
    return max(1, min(1024, int(room / max(item * (2 * sum(costs.raw.values()) + costs.activations), 1))))


def _within(costs: Costs, rows: int, columns: int | None, budget: int, least: int, item: int) -> list[Pass]:
    """`least` is what a capture may take beside what is held."""
    length = rows + (columns or 0)
    whole = max(rows, columns or 0)
    room = budget // 2
    kept = {name: item * size for name, size in costs.kept.items()}
    passes: list[Pass] = []
    together: list[str] = []
    held = 0.0
    for name in sorted(kept, key=lambda n: kept[n]):
        if kept[name] * length > room:
            block = max(1, int(room / (2 * kept[name])))
            passes.append(Pass((name,), min(block, whole), _chunk(costs, [name], max(least, room // 4), item)))
            continue
        if together and (held + kept[name]) * length > room:
            passes.append(Pass(tuple(together), whole, _chunk(costs, together, max(least, held * length / 4), item)))
            together, held = [], 0.0
        together.append(name)
        held += kept[name]
    if together:
        passes.append(Pass(tuple(together), whole, _chunk(costs, together, max(least, held * length / 4), item)))
    return passes


def _chunk(costs: Costs, names: list[str], room: float, item: int) -> int:
    each = item * (2 * sum(costs.raw[n] for n in names) + max(costs.kept[n] for n in names) + costs.activations)
    return max(1, min(1024, int(room / max(each, 1))))


def captured(one: Pass, rows: int, columns: int | None) -> int:
    """Examples captured in a pass, repeats counted."""
    blocks = -(-rows // one.block)
    if columns is not None:
        return rows + blocks * columns
    return sum(rows - i * one.block for i in range(blocks))
