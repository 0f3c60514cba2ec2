"""Which block of modes carries which family of features: the readings shared by the verdict and the tangent section."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from tangentlens.report.labelled import last, names_along, reference, steps_of, variable
from tangentlens.report.words import is_number

CARRIED = 0.5  # share of what chance leaves over that a block must hold to be said to carry a family


@dataclass(frozen=True)
class Carried:
    """The block that holds most of a family beyond its own chance level, at each step."""

    family: str
    overlap: xr.DataArray
    chance: xr.DataArray
    excess: xr.DataArray
    block: xr.DataArray

    @property
    def since(self) -> int | None:
        """The first recorded step from which on the family stays carried, if it is at the end."""
        good = np.nan_to_num(np.asarray(self.excess)) >= CARRIED
        if not good.size or not good[-1]:
            return None
        missing = np.flatnonzero(~good)
        return steps_of(self.excess)[int(missing[-1]) + 1 if missing.size else 0]

    @property
    def from_the_start(self) -> bool:
        return bool(np.nan_to_num(np.asarray(self.excess))[0] >= CARRIED)

    @property
    def learned(self) -> bool:
        """Carried at the end, and seen not to be carried before any training."""
        return self.since is not None and not self.from_the_start and steps_of(self.excess)[0] == 0


def carried_families(tree: xr.DataTree) -> list[Carried]:
    """Each named family with its best block: the one furthest above chance, (overlap - chance) / (1 - chance).

    A block of nearly all modes holds nearly everything; measuring from its chance level keeps it from winning.
    """
    overlap = variable(tree, "tangent/overlap")
    if overlap is None or not {"block", "family"} <= set(overlap.dims):
        return []
    overlap = overlap.reindex(step=sorted({*steps_of(overlap), *_steps_without_blocks(tree)}))
    chance = reference(tree, "tangent/overlap", "chance")
    level = xr.zeros_like(overlap.isel(family=0, drop=True)) if chance is None else chance.reindex(step=overlap["step"])
    excess = ((overlap - level) / (1 - level.where(level < 1))).transpose("step", "block", "family")
    found = []
    for i, family in enumerate(names_along(overlap, "family")):
        one = excess.isel(family=i, drop=True)
        best = one.fillna(-np.inf).argmax("block")
        shown = overlap.isel(family=i, drop=True).isel(block=best)
        found.append(Carried(family, shown, level.isel(block=best), one.isel(block=best), best))
    return found


def _steps_without_blocks(tree: xr.DataTree) -> set[int]:
    """Steps whose spectrum was read and has no cliff: there no block carries anything, which is a measurement too."""
    spectrum, ends = variable(tree, "tangent/eigenvalues"), variable(tree, "tangent/block_last")
    read, broken = (set() if values is None else set(steps_of(values)) for values in (spectrum, ends))
    return read - broken


def chance_of_a_mode(tree: xr.DataTree) -> float:
    """What one random mode holds of any space: one over the examples the kernel was read on; NaN where not recorded."""
    level = last(variable(tree, "tangent/share_chance"))
    if is_number(level):
        return level
    chance = variable(tree, "tangent/overlap_chance")
    first, ends = variable(tree, "tangent/block_first"), variable(tree, "tangent/block_last")
    if chance is None or first is None or ends is None:
        return float("nan")
    return last(chance / (ends - first).where(ends > first))


def cliffs(tree: xr.DataTree) -> dict[int, tuple[int, ...]]:
    """Modes above each detected cliff, at each step whose spectrum was read: {step: counts}, empty where none is."""
    ends = variable(tree, "tangent/block_last")
    found: dict[int, tuple[int, ...]] = dict.fromkeys(sorted(_steps_without_blocks(tree)), ())
    if ends is not None and "block" in ends.dims:
        rows = np.asarray(ends, dtype=float)
        found |= {
            step: tuple(int(end) for end in row[np.isfinite(row)])
            for step, row in zip(steps_of(ends), rows, strict=True)
        }
    return dict(sorted(found.items()))


def learned_cliffs(tree: xr.DataTree) -> dict[int, tuple[int, ...]]:
    """Those of the cliffs that the initial network does not have, at each step where that was recorded."""
    learned, ends = variable(tree, "tangent/cliff_learned"), variable(tree, "tangent/block_last")
    if learned is None or ends is None:
        return {}
    counts = ends.reindex(step=learned["step"])
    return {
        step: tuple(int(end) for end, made in zip(row, marks, strict=True) if made == 1)
        for step, row, marks in zip(steps_of(learned), np.asarray(counts), np.asarray(learned), strict=True)
    }


def first_learned_cliff(tree: xr.DataTree) -> int | None:
    """The first recorded step at which the same learned cliff is there for the second record in a row, or None.

    Each step is judged by itself and the initial network, so no later step enters.
    """
    steps = list(learned := learned_cliffs(tree))
    return next((step for before, step in zip(steps, steps[1:]) if {*learned[before]} & {*learned[step]}), None)


def block_span(tree: xr.DataTree, block: int) -> tuple[int, int] | None:
    """First and one-past-last mode of a block at the last step that has blocks, counted from zero."""
    first, ends = variable(tree, "tangent/block_first"), variable(tree, "tangent/block_last")
    if first is None or ends is None:
        return None
    span = float(first.values[-1, block]), float(ends.values[-1, block])
    return (int(span[0]), int(span[1])) if np.isfinite(span).all() else None


def block_names(tree: xr.DataTree, step_row: int = -1) -> list[str]:
    """Blocks as the modes they hold, counted from one: '2–57'."""
    first, ends = variable(tree, "tangent/block_first"), variable(tree, "tangent/block_last")
    if first is None or ends is None:
        return []
    pairs = zip(np.asarray(first, float)[step_row], np.asarray(ends, float)[step_row], strict=True)
    return [_span(a, b) for a, b in pairs]


def _span(first: float, end: float) -> str:
    if not (np.isfinite(first) and np.isfinite(end)):
        return "–"
    return f"{int(first) + 1}" if end - first == 1 else f"{int(first) + 1}–{int(end)}"
