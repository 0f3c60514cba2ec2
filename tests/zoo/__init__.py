"""Small models of every kind, each with the trap it sets; `ENTRIES` is all of them."""

from __future__ import annotations

from tests.zoo import (
    attention,
    complex_numbers,
    convolutional,
    dense,
    embedded,
    functional,
    huggingface,
    inplace,
    normalised,
    recurrent,
    reparametrised,
    returned,
    routed,
    shared,
    unusual,
)
from tests.zoo.entry import Entry

FAMILIES = (
    dense,
    convolutional,
    inplace,
    normalised,
    embedded,
    attention,
    recurrent,
    shared,
    functional,
    reparametrised,
    routed,
    unusual,
    complex_numbers,
    returned,
    huggingface,
)

ENTRIES: tuple[Entry, ...] = tuple(
    found for family in FAMILIES for found in vars(family).values() if isinstance(found, Entry)
)
BY_NAME: dict[str, Entry] = {found.name: found for found in ENTRIES}

assert len(BY_NAME) == len(ENTRIES), "two entries of the zoo share a name"
