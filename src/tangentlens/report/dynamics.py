"""Signs of rich or lazy dynamics in a record, each with its numbers and its rule; never accuracy.

Size and direction of the tangent kernel are read together. The cosine alone misleads: one large constant mode keeps it
near one in networks that demonstrably learn features, so a small drift is lazy only where the size stayed too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import xarray as xr

from tangentlens.report.blocks import carried_families
from tangentlens.report.labelled import last, recorded_steps, reference, steps_of, variable
from tangentlens.report.sections.regime import regime_name
from tangentlens.report.words import is_number, listed, number

RICH, LAZY = 0.5, 0.9  # D_LR over its initial level: up to the first is rich, above the second lazy
KEPT = 0.9  # alignment of the features with the initial ones from which they count as unmoved
STILL, TURNED = 0.1, 0.5  # the kernel's relative change below which it is lazy; the drift from which it is rich


@dataclass(frozen=True)
class Sign:
    """One reading of the record; `says` nothing where the numbers lie between the thresholds or decide nothing."""

    of: str
    says: Literal["rich", "lazy", ""]
    numbers: str
    rule: str = ""
    step: int | None = None
    """The last step at which it was measured."""


def signs_of_richness(tree: xr.DataTree) -> list[Sign]:
    """Everything the record holds about richness, the feature map first; nothing where one step was recorded."""
    if len(recorded_steps(tree)) < 2:
        return []
    return [sign for sign in (_feature_map(tree), _kernel(tree), _features(tree), _regime(tree)) if sign]


def rich_or_lazy(signs: list[Sign]) -> str:
    """The word for the sentence; nothing when no sign can decide."""
    rich, lazy = ([sign.of for sign in signs if sign.says == word] for word in ("rich", "lazy"))
    if rich and lazy:
        return f"rich by {listed(rich)} but lazy by {listed(lazy)}"
    if rich or lazy:
        return "rich" if rich else "lazy"
    return "neither clearly rich nor clearly lazy" if any(sign.rule for sign in signs) else ""


def decided_at(signs: list[Sign]) -> int | None:
    """The step up to which the word holds: the earliest of the last measurements it rests on."""
    deciding = [sign for sign in signs if sign.says] or [sign for sign in signs if sign.rule]
    return min((sign.step for sign in deciding if sign.step is not None), default=None)


def _feature_map(tree: xr.DataTree) -> Sign | None:
    measured = variable(tree, "forward/richness")
    value, start = last(measured), last(reference(tree, "forward/richness", "initial"))
    if measured is None or measured.sizes["step"] < 2 or not (is_number(value) and is_number(start) and start > 0):
        return None  # one measurement is a state, and no sign of what training did to it
    isotropic = last(reference(tree, "forward/richness", "null"))
    beside = f", isotropic features {number(isotropic)}" if is_number(isotropic) else ""
    kept = last(variable(tree, "forward/initial_alignment"))
    stayed = not is_number(kept) or kept >= KEPT  # features that moved are not lazy, whatever they moved to
    says: Literal["rich", "lazy", ""] = (
        "rich" if value <= RICH * start else "lazy" if value > LAZY * start and stayed else ""
    )
    moved = f"; the features' alignment with the initial ones {number(kept)}" if is_number(kept) else ""
    return Sign(
        "the last layer's features",
        says,
        f"D_LR {number(value)} against {number(start)} before training{beside} (0 is rich, 1 lazy){moved}",
        f"D_LR is rich up to {RICH:g} of its level before training, and lazy above {LAZY:g} of it where the features "
        f"stayed (alignment with the initial ones at least {KEPT:g}, if it was recorded)",
        steps_of(measured)[-1],
    )


def _kernel(tree: xr.DataTree) -> Sign | None:
    drift, growth = variable(tree, "tangent/kernel_drift"), last(variable(tree, "tangent/kernel_growth"))
    turned = last(drift)
    if drift is None or drift.sizes["step"] < 2 or not is_number(turned):
        return None
    numbers = f"the tangent kernel turned by {number(turned)}"
    rule = f"a kernel that turned by {TURNED:g} is rich"
    if not is_number(growth):
        return Sign("the tangent kernel", "rich" if turned >= TURNED else "", numbers, rule, steps_of(drift)[-1])
    change = math.sqrt(max(0.0, growth**2 - 2 * growth * (1 - turned) + 1))
    says: Literal["rich", "lazy", ""] = "rich" if turned >= TURNED else "lazy" if change < STILL else ""
    return Sign(
        "the tangent kernel",
        says,
        f"{numbers} and grew to {number(growth)} times its size (relative change {number(change)})",
        f"{rule}, one whose relative change stays below {STILL:g} is lazy, and size alone decides nothing",
        steps_of(drift)[-1],
    )


def _features(tree: xr.DataTree) -> Sign | None:
    """Features the kernel spans now and did not span at the start are feature learning in its own words."""
    found = [one for one in carried_families(tree) if one.learned]
    if not found:
        return None
    learned = [one.family for one in found]
    return Sign(
        "new tangent features",
        "rich",
        f"the tangent kernel's modes came to span {listed(learned)} during training",
        "new features in the kernel's modes are rich",
        steps_of(found[0].excess)[-1],
    )


def _regime(tree: xr.DataTree) -> Sign | None:
    regime, codes = regime_name(tree), variable(tree, "forward/regime")
    if not regime or codes is None or codes.sizes["step"] < 2:
        return None
    return Sign("the regime", "", f"regime by its recorded thresholds: {regime}", step=steps_of(codes)[-1])
