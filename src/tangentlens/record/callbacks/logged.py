"""What a framework logged, as scalars of a record: single numbers, under names that a record can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tangentlens.record.asked import is_single


def logged(metrics: Mapping[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    """Single numbers by name: a slash would be a group, and `taken` are names the record uses itself.

    >>> logged({"val/loss": 0.5, "step": 3, "note": "text"}, frozenset({"step"}))
    {'val_loss': 0.5, 'logged_step': 3}
    """
    numbers = {name.replace("/", "_"): value for name, value in metrics.items() if is_single(value)}
    return {f"logged_{name}" if name in taken else name: value for name, value in numbers.items()}
