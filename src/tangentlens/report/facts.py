"""What a run was: model, probe, seed, versions, device, dtype, and how each parameter was reached."""

from __future__ import annotations

from collections import Counter
from typing import Any

import xarray as xr

from tangentlens.report.labelled import attribute, recorded_steps
from tangentlens.report.sections.recording import overhead_share
from tangentlens.report.words import is_number, number, percent

RUNGS = {
    "rule": "their layers' own formula",
    "vmap": "per-example gradients",
    "loop": "one gradient after the other",
    "unused": "nothing, as no output depends on them",
}
"""How a parameter's gradients were reached, in words."""


def facts(tree: xr.DataTree) -> dict[str, str]:
    """Facts as words, in the order a reader asks for them; what was not recorded is left out."""
    versions = attribute(tree, "versions", {})
    versions = versions if isinstance(versions, dict) else {"": versions}
    steps = recorded_steps(tree)
    share = overhead_share(tree)
    found: dict[str, Any] = {
        "model": _model(tree),
        "probe": attribute(tree, "probe"),
        "seed": _plain(attribute(tree, "seed")),
        "steps": _steps(tree, steps),
        "schedule": attribute(tree, "schedule"),
        "device": attribute(tree, "device"),
        "dtype": attribute(tree, "dtype"),
        "features read": _features(tree),
        "gradients": _rungs(tree),
        "recorded": _when(tree),
        "state": attribute(tree, "state"),
        "overhead": f"{percent(share)} of the run time" if is_number(share) else "",
        "commit": str(attribute(tree, "git_commit"))[:20],
        "versions": ", ".join(f"{name} {version}".strip() for name, version in versions.items()),
        "settings": _settings(attribute(tree, "settings")),
    }
    return {name: str(value) for name, value in found.items() if str(value).strip()}


def rung_table(tree: xr.DataTree) -> list[tuple[str, str]]:
    """Each parameter and the rung of the engine's ladder that served it."""
    rungs = attribute(tree, "rungs", {})
    return [(str(name), str(rung)) for name, rung in rungs.items()] if isinstance(rungs, dict) else []


def _model(tree: xr.DataTree) -> str:
    name, parameters = str(attribute(tree, "model")), attribute(tree, "parameters", None)
    return f"{name}, {number(parameters)} parameters" if is_number(parameters) else name


def _features(tree: xr.DataTree) -> str:
    """Where the forward features were read, in the record's words."""
    attrs = tree["forward"].attrs if "forward" in tree.children else {}
    layer = attrs.get("layer")
    return str(attrs.get("reading") or (f"input of {layer}" if layer else ""))


def _plain(value: Any) -> str:
    """A seed is a name: never grouped or rounded."""
    return str(int(value)) if is_number(value) else str(value)


def _steps(tree: xr.DataTree, steps: list[int]) -> str:
    if not steps:
        return "none yet"
    seen = attribute(tree, "last_step", None)
    further = f"; training showed step {int(seen):,}" if is_number(seen) and int(seen) > steps[-1] else ""
    return f"{len(steps):,} recorded, {steps[0]:,} to {steps[-1]:,}{further}"


def _rungs(tree: xr.DataTree) -> str:
    counted = Counter(rung for _, rung in rung_table(tree))
    return ", ".join(f"{count:,} parameters by {RUNGS.get(rung, rung)}" for rung, count in counted.most_common())


def _when(tree: xr.DataTree) -> str:
    created, updated = str(attribute(tree, "created"))[:19], str(attribute(tree, "updated"))[:19]
    return " to ".join(filter(None, (created.replace("T", " "), updated.replace("T", " ")))) + (
        " UTC" if created or updated else ""
    )


def _settings(settings: Any) -> str:
    if isinstance(settings, dict):
        told = {name: value for name, value in settings.items() if value is not None}
        return ", ".join(f"{name} = {number(value) if is_number(value) else value}" for name, value in told.items())
    return "" if settings in (None, "null") else str(settings)
