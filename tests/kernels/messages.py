"""How the tests read an error message."""

from __future__ import annotations

import pytest

from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, plan

every_function = pytest.mark.parametrize("function", [entk, entk_full, entk_mean_output, entk_by_layer, plan])


def says(*facts: str) -> str:
    """A pattern that holds when all facts occur, in any order."""
    return "(?si)" + "".join(f"(?=.*(?:{fact}))" for fact in facts)
