"""What a measurement was made with, for the line above its table."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from importlib import metadata


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Of those that are installed here."""
    found = {"python": platform.python_version()}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def described(packages: Sequence[str] = ("tangentlens", "torch", "numpy")) -> str:
    """Date and versions in words."""
    return ", ".join([date.today().isoformat(), *(f"{name} {each}" for name, each in versions(packages).items())])
