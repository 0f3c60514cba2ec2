"""The command line: settings as dataclasses, one file per command, imported only when it is run."""

from __future__ import annotations

from tangentlens.cli.main import main

__all__ = ["main"]
