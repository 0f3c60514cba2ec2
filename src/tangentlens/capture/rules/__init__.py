"""One rule per kind of operation: how the gradient of a parameter follows from (a, b) at its use.

A rule is looked up by the name of the operation's node in the autograd graph. It returns a `Reading`, or None for a
slot it does not serve; what no rule serves goes down the ladder. To add one: write a function (node, slot) -> Reading
in the file of its kind and name it in that file's RULES.
"""

from __future__ import annotations

from typing import Any

from tangentlens.capture.rules import convolution, elementwise, lookup, matmul, normalisation
from tangentlens.capture.rules.reading import Reading

RULES = {
    name: rule
    for kind in (matmul, convolution, lookup, elementwise, normalisation)
    for name, rule in kind.RULES.items()
}
LOOKUPS = frozenset(lookup.RULES)
"""Operations at which data enters without a gradient, as numbers of rows."""


def reading(node: Any, slot: int) -> Reading | None:
    """What the rule for this operation reads at this slot, or None if there is none."""
    rule = RULES.get(node.name())
    return rule(node, slot) if rule is not None else None


__all__ = ["LOOKUPS", "RULES", "Reading", "reading"]
