"""The layers before the last one: how far is each from the least that expresses the network's outputs?"""

from __future__ import annotations

from dataclasses import replace

from tangentlens.studies.nam2024.digits import seeded, watched
from tangentlens.studies.nam2024.looking import Look, audience, look
from tangentlens.studies.nam2024.material import CLASSES, Material
from tangentlens.studies.nam2024.models import fully_connected


def every_layer(material: Material, seed: int) -> dict[str, Look]:
    """A deeper fully connected network on digits; every linear layer is read at its input, the first one left out."""
    sizes, train, test = material.sizes, material.digits.rows(0, material.sizes.train), material.digits_test
    widths = (sizes.dense_widths[-1],) * 4
    model = seeded(seed, material, lambda: fully_connected(28 * 28, widths, CLASSES))
    names = [name for name, module in model.named_modules() if name and hasattr(module, "weight")][1:]
    audiences = {name: audience(model, test.inputs, test.targets, name) for name in names}
    watched(model, train, audiences[names[-1]], replace(sizes.dense, seed=seed), [])
    return {name: look(model, at, sizes.dense.steps) for name, at in audiences.items()}
