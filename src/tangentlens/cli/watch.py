"""``tangentlens watch``: a run's page, live."""

from __future__ import annotations

from tangentlens.cli.commands import Watch
from tangentlens.report import watch, watch_text


def run(settings: Watch) -> int:
    """Serve the page on this machine, or follow the run in the terminal, until interrupted."""
    if settings.text:
        watch_text(settings.run)
    else:
        watch(settings.run, port=settings.port)
    return 0
