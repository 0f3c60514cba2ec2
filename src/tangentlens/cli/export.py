"""``tangentlens export``: a run's numbers for other programs."""

from __future__ import annotations

from tangentlens.cli.commands import Export
from tangentlens.record import export_record


def run(settings: Export) -> int:
    """Write the files and print where they are."""
    for file in export_record(settings.run, settings.out, settings.format):
        print(file)
    return 0
