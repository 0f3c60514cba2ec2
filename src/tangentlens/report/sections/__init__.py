"""One section an instrument, in reading order; each says whether a record has it, and shows it for one run or several.

An instrument without a file here is still shown: its variables are drawn from their labels alone.
"""

from __future__ import annotations

from tangentlens.report.section import Section
from tangentlens.report.sections import (
    ansatz,
    forward,
    modular_mlp,
    modular_transformer,
    other,
    recording,
    superposition,
    tangent,
    tokens,
    training,
)
from tangentlens.report.sections.facets import Trees

SHOWN = {
    "training": training,
    "tangent": tangent,
    "forward": forward,
    "ansatz": ansatz,
    "tokens": tokens,
    # the numbers of a study, not a run's
    "superposition": superposition,
    "modular_mlp": modular_mlp,
    "modular_transformer": modular_transformer,
}
HIDDEN = ("overhead", "errors", "modular_mlp_control")


def sections_of(trees: Trees) -> list[Section]:
    """The sections these runs have anything for."""
    found = [
        module.section({run: tree for run, tree in trees.items() if module.present(tree)})
        for module in SHOWN.values()
        if any(module.present(tree) for tree in trees.values())
    ]
    groups = dict.fromkeys(str(group) for tree in trees.values() for group in tree.children)
    own = [other.section_of(group, trees) for group in groups if group not in SHOWN and group not in HIDDEN]
    found += [section for section in own if section]
    if any(recording.present(tree) for tree in trees.values()):
        found.append(recording.section({run: tree for run, tree in trees.items() if recording.present(tree)}))
    return [section for section in found if section.panels]
