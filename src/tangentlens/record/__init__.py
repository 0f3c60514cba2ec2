"""Stage 4: numbers along a run -> labelled data on disk: what (Measure), when (Schedule), by whom (Recorder)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangentlens.record.export import export_record as export_record
    from tangentlens.record.follow import follow_checkpoints as follow_checkpoints
    from tangentlens.record.measure import Measure as Measure
    from tangentlens.record.open import errors as errors, open_record as open_record, recorded_steps as recorded_steps
    from tangentlens.record.recorder import Recorder as Recorder
    from tangentlens.record.schedule import (
        at as at,
        either as either,
        every as every,
        log_spaced as log_spaced,
        when as when,
        when_changed as when_changed,
    )
    from tangentlens.record.snapshot import Snapshot as Snapshot

# looked up when asked for: reading a record needs no torch
_PLACES = {
    "Measure": "measure",
    "Recorder": "recorder",
    "Snapshot": "snapshot",
    "at": "schedule",
    "either": "schedule",
    "errors": "open",
    "export_record": "export",
    "follow_checkpoints": "follow",
    "every": "schedule",
    "log_spaced": "schedule",
    "open_record": "open",
    "recorded_steps": "open",
    "when": "schedule",
    "when_changed": "schedule",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
