"""Experiments on digits: frozen features, a shortcut in the pictures, shuffled labels, and where baselines mislead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from tangentlens.kernels.tangent import entk
from tangentlens.measures.feature_change import kernel_distance
from tangentlens.studies.nam2024.looking import Audience, Look, accuracy, audience, look, outputs_of
from tangentlens.studies.nam2024.material import CLASSES, Labelled, Material, with_code
from tangentlens.studies.nam2024.models import FromTheStart, convolutional, fully_connected, scaled
from tangentlens.studies.nam2024.training import Training, relative_loss, trained

Arms = dict[str, list[Look]]


class Downscaled(NamedTuple):
    """The arms, how far the tangent kernel moved in each, and the share of the training targets left unlearned."""

    arms: Arms
    changes: dict[str, float]
    left: dict[str, float]


NTK_EXAMPLES = 50


def frozen_and_full(material: Material, seed: int) -> Arms:
    """A convolutional network trained fully, and with frozen features: only the head moves."""
    sizes, train, test = material.sizes, material.digits.rows(0, material.sizes.train), material.digits_test
    arms: Arms = {}
    for arm, head_only in (("full", False), ("frozen", True)):
        model = seeded(seed, material, lambda: convolutional(sizes.digits_channels, sizes.digits_units, CLASSES))
        how = replace(sizes.digits, head_only=head_only, seed=seed)
        quarter = max(1, len(train.labels) // how.batch // 4)
        pauses = [0, *(step for step in (quarter, 2 * quarter, 4 * quarter, 8 * quarter) if step < how.steps)]
        arms[arm] = watched(model, train, audience(model, test.inputs, test.targets), how, pauses)
    return arms


def shortcut(material: Material, seed: int) -> tuple[Arms, dict[str, float]]:
    """Rich but useless, lazy but better: training pictures carry their label as a faint mark, test pictures another.

    Features are looked at on fresh pictures whose mark is right; the accuracies are on pictures whose mark is random.
    """
    sizes, train = material.sizes, material.digits.rows(0, material.sizes.train)
    fresh, test = material.digits.rows(sizes.train), material.digits_test
    marked, seen = with_code(train, train.labels), with_code(fresh, fresh.labels)
    generator = torch.Generator().manual_seed(seed)
    spoiled = with_code(test, torch.randint(CLASSES, (len(test.labels),), generator=generator).to(test.labels))
    arms: Arms = {}
    useful: dict[str, float] = {}
    for arm, head_only in (("full", False), ("last layer only", True)):
        model = dense(seed, material)
        at = audience(model, seen.inputs, seen.targets)
        arms[arm] = watched(model, marked, at, replace(sizes.dense, head_only=head_only, seed=seed), [0])
        useful[arm] = accuracy(outputs_of(model, spoiled.inputs), spoiled.targets)
    return arms, useful


def shuffled_labels(material: Material, seed: int) -> tuple[Arms, dict[str, float]]:
    """The same pictures with true and with shuffled labels, learned by heart; looked at on the training pictures."""
    sizes, test = material.sizes, material.digits_test
    train = material.digits.rows(0, sizes.memorised)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(train.labels), generator=generator).to(train.labels.device)
    arms: Arms = {}
    useful: dict[str, float] = {}
    for arm, labels in (("true", train.labels), ("shuffled", train.labels[order])):
        model, known = dense(seed, material), Labelled(train.inputs, labels)
        at = audience(model, known.inputs, known.targets)
        arms[arm] = watched(model, known, at, replace(sizes.memorising, seed=seed), [0])
        useful[arm] = accuracy(outputs_of(model, test.inputs), test.targets)
    return arms, useful


def weight_decay(material: Material, seed: int) -> Arms:
    """The same training without and with weight decay, from weights so large that features need not move.

    From the usual weights training moves features anyway, and a decay adds nothing that could be told from it.
    """
    sizes, train, test = material.sizes, material.digits.rows(0, material.sizes.decayed), material.digits_test
    arms: Arms = {}
    for decay in sizes.weight_decays:
        model = scaled(dense(seed, material), sizes.decaying_scale)
        how = replace(sizes.decaying, weight_decay=decay, seed=seed)
        arms[f"weight decay {decay:g}"] = watched(model, train, audience(model, test.inputs, test.targets), how, [0])
    return arms


def downscaled_targets(material: Material, seed: int) -> Downscaled:
    """Targets divided by alpha: the larger alpha, the less features have to move.

    What is learned is f - f_0, and every alpha is trained until equally little of its targets is left: unlearning f_0,
    and having been trained less, would look like laziness. Looked at on test digits.
    """
    sizes, test = material.sizes, material.digits_test
    train = material.digits.rows(0, sizes.memorised)
    found = Downscaled({}, {}, {})
    few = test.inputs[:NTK_EXAMPLES]
    before = entk(dense(seed, material), few)
    for alpha in sizes.downscalings:
        name, model, targets = f"alpha {alpha:g}", dense(seed, material), train.targets / alpha
        at = audience(model, test.inputs, test.targets)
        looks = [look(model, at)]  # of f_0: f - f_0 has no richness yet
        learned = FromTheStart(model)
        for step in trained(learned, train.inputs, targets, replace(sizes.downscaled, seed=seed)):
            looks.append(look(learned, at, step, initial=looks[0].distance))
        found.arms[name] = looks
        found.changes[name] = kernel_distance(entk(model, few), before)
        found.left[name] = relative_loss(learned, train.inputs, targets)
    return found


def dense(seed: int, material: Material) -> nn.Module:
    """A fresh fully connected network for digits."""
    return seeded(seed, material, lambda: fully_connected(28 * 28, material.sizes.dense_widths, CLASSES))


def seeded(seed: int, material: Material, build: Callable[[], nn.Module]) -> nn.Module:
    """A network whose initial weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build()
    return model.to(material.device)


def watched(model: nn.Module, train: Labelled, at: Audience, how: Training, pauses: list[int]) -> list[Look]:
    """Looks at the pauses and at the end of a training."""
    looks: list[Look] = []
    for step in trained(model, train.inputs, train.targets, how, pauses):
        initial = looks[0].distance if looks else None
        looks.append(look(model, at, step, initial=initial))
    return looks
