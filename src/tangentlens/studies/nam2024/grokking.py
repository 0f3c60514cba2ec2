"""Modular addition with a transformer, before and after it generalises."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from tangentlens.studies.nam2024.digits import seeded
from tangentlens.studies.nam2024.looking import Look, audience, look, outputs_of
from tangentlens.studies.nam2024.material import Material
from tangentlens.studies.nam2024.models import AdditionTransformer
from tangentlens.studies.nam2024.training import trained


@dataclass(frozen=True)
class Moment:
    """A look at all pairs, with the accuracies on those trained on and the others."""

    look: Look
    train_accuracy: float
    test_accuracy: float


def grokking(material: Material, seed: int) -> list[Moment]:
    """a + b modulo p from a random share of all pairs.

    (a, b) may be known while (b, a) is not: a network that has learned only that they are equal already knows as many
    of the pairs left out as the share trained on.
    """
    sizes = material.sizes
    numbers = torch.arange(sizes.modulus, device=material.device)
    pairs = torch.cartesian_prod(numbers, numbers)
    labels = pairs.sum(1) % sizes.modulus
    targets = torch.nn.functional.one_hot(labels, sizes.modulus).float()
    generator = torch.Generator().manual_seed(seed)
    known = torch.zeros(len(pairs), dtype=torch.bool)
    known[torch.randperm(len(pairs), generator=generator)[: int(sizes.addition_share * len(pairs))]] = True
    known = known.to(material.device)
    build = lambda: AdditionTransformer(sizes.modulus, sizes.addition_width, sizes.addition_layers)  # noqa: E731
    model = seeded(seed, material, build)
    at = audience(model, pairs, targets)
    moments: list[Moment] = []
    how = replace(sizes.addition, seed=seed)
    for step in trained(model, pairs[known], targets[known], how, (0, *sizes.addition_looks)):
        right = (outputs_of(model, pairs).argmax(1) == labels).double()
        initial = moments[0].look.distance if moments else None
        seen = look(model, at, step, initial=initial)
        moments.append(Moment(seen, float(right[known].mean()), float(right[~known].mean())))
    return moments
