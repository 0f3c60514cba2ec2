"""Whole experiments: one paper each, ending in a table of claims.

A study is named here and imported only when it is run, so that listing the studies loads no network library.
"""

from __future__ import annotations

from importlib import import_module

from tangentlens.studies.claims import (
    Band,
    Claim,
    Study,
    StudyOptions,
    StudyResult,
    Verdict,
    around,
    claims_json,
    judged,
    judged_all,
    within_share,
    write_claims,
)
from tangentlens.studies.claims_table import table

# name -> the module holding its `STUDY`
_MODULES = {
    "lin2025": "tangentlens.studies.lin2025",
    "nam2024": "tangentlens.studies.nam2024",
    "beaglehole2024": "tangentlens.studies.beaglehole2024",
    "sun2023": "tangentlens.studies.sun2023",
}

STUDY_NAMES: tuple[str, ...] = tuple(_MODULES)


def study(name: str) -> Study:
    """The study of that name; its module defines `STUDY: Study`."""
    if name not in _MODULES:
        raise ValueError(f"a study is one of {', '.join(STUDY_NAMES)}, got {name!r}")
    found = import_module(_MODULES[name]).STUDY
    assert isinstance(found, Study)
    return found


__all__ = [
    "STUDY_NAMES", "Band", "Claim", "Study", "StudyOptions", "StudyResult", "Verdict",
    "around", "claims_json", "judged", "judged_all", "study", "table", "within_share", "write_claims",
]  # fmt: skip
