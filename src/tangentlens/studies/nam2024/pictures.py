"""Experiments on colour pictures: training-set size, learning rate, batch norm, and a network without convolutions."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from tangentlens.studies.nam2024.digits import Arms, seeded, watched
from tangentlens.studies.nam2024.looking import Look, audience
from tangentlens.studies.nam2024.material import CLASSES, Labelled, Material
from tangentlens.studies.nam2024.models import fully_connected, plain_deep, residual
from tangentlens.studies.nam2024.training import Training


def training_size(material: Material, seed: int) -> Arms:
    """A residual network on few and on many pictures, for equally many steps."""
    sizes = [count for count in material.sizes.training_sizes if count <= len(material.pictures.labels)]
    return {
        f"{count} pictures": _arm(material, _residual(material, seed), material.pictures.rows(0, count),
                                  replace(material.sizes.residual, seed=seed))
        for count in sizes
    }  # fmt: skip


def learning_rate(material: Material, seed: int) -> Arms:
    """The same network and steps at three learning rates."""
    return {
        f"learning rate {rate:g}": _trained_on(
            material, _residual(material, seed), replace(material.sizes.residual, learning_rate=rate, seed=seed)
        )
        for rate in material.sizes.learning_rates
    }


def batch_norm(material: Material, seed: int) -> Arms:
    """A VGG without and with batch norm."""
    sizes = material.sizes

    def network(norm: bool) -> nn.Module:
        side = material.picture_side
        build = lambda: plain_deep(sizes.vgg_widths, CLASSES, batch_norm=norm, side=side)  # noqa: E731
        return seeded(seed, material, build)

    return {
        name: _trained_on(material, network(norm), replace(sizes.vgg, seed=seed))
        for name, norm in (("without batch norm", False), ("with batch norm", True))
    }


def fully_connected_on_pictures(material: Material, seed: int) -> Arms:
    """A network without convolutions, said to use many more features than classes, beside one with them.

    Both are trained alike, and long enough to know their pictures: a network that is not done yet uses many features
    anyway.
    """
    sizes = material.sizes
    inputs = material.pictures.inputs[0].numel()
    dense = seeded(seed, material, lambda: fully_connected(inputs, sizes.dense_widths, CLASSES))
    rate = sizes.learning_rates[len(sizes.learning_rates) // 2]  # of the three the one in the middle
    how = replace(sizes.residual, learning_rate=rate, seed=seed)
    return {
        "fully connected": _trained_on(material, dense, how),
        "residual": _trained_on(material, _residual(material, seed), how),
    }


def _residual(material: Material, seed: int) -> nn.Module:
    sizes = material.sizes
    return seeded(seed, material, lambda: residual(sizes.residual_blocks, sizes.residual_width, CLASSES))


def _arm(material: Material, model: nn.Module, train: Labelled, how: Training) -> list[Look]:
    """Looked at on test pictures."""
    test = material.pictures_test
    return watched(model, train, audience(model, test.inputs, test.targets), how, [0])


def _trained_on(material: Material, model: nn.Module, how: Training) -> list[Look]:
    """Looked at on training pictures, accuracy on test pictures.

    The paper's table puts 0.034 beside shuffled labels at chance: that can only be of training pictures, and learning
    rates and batch norm stand in the same table.
    """
    train, test = material.pictures.rows(0, material.sizes.learned), material.pictures_test
    seen = train.rows(0, material.sizes.looked)
    at = audience(model, seen.inputs, seen.targets, fresh=(test.inputs, test.targets))
    return watched(model, train, at, how, [0])
