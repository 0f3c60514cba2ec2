"""The examples of the study: digits and colour pictures, cut to size and put on the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from tangentlens.measures.forward_moments import one_hot
from tangentlens.studies.datasets import Images, cifar10, mnist
from tangentlens.studies.nam2024.sizes import Sizes

CLASSES = 10


@dataclass(frozen=True, eq=False)
class Labelled:
    """Inputs, class numbers and one-hot targets."""

    inputs: Float[Tensor, "example ..."]
    labels: Int[Tensor, "example"]

    @cached_property
    def targets(self) -> Float[Tensor, "example output"]:
        return one_hot(self.labels, CLASSES).float()

    def rows(self, start: int, stop: int | None = None) -> Labelled:
        return Labelled(self.inputs[start:stop], self.labels[start:stop])


@dataclass(frozen=True)
class Material:
    """Where the data are and how much of them is used; read when first asked for."""

    folder: Path | None
    sizes: Sizes
    device: str

    @cached_property
    def digits(self) -> Labelled:
        return self._digits("train", self.sizes.train + self.sizes.looked)

    @cached_property
    def digits_test(self) -> Labelled:
        return self._digits("test", self.sizes.looked)

    @cached_property
    def pictures(self) -> Labelled:
        return self._pictures("train", self.sizes.train)

    @cached_property
    def pictures_test(self) -> Labelled:
        return self._pictures("test", self.sizes.looked)

    @property
    def picture_side(self) -> int:
        return 32 // self.sizes.shrink

    def _digits(self, split: str, count: int) -> Labelled:
        return self._placed(mnist("train" if split == "train" else "test", self.folder, examples=count))

    def _pictures(self, split: str, count: int) -> Labelled:
        images = cifar10("train" if split == "train" else "test", self.folder).first(count)
        small = F.avg_pool2d(images.inputs, self.sizes.shrink)
        centred = (small - small.mean((0, 2, 3), keepdim=True)) / small.std((0, 2, 3), keepdim=True)
        return self._placed(Images(centred, images.labels, images.classes))

    def _placed(self, images: Images) -> Labelled:
        return Labelled(images.inputs.to(self.device), images.labels.to(self.device))


def with_code(pictures: Labelled, codes: Int[Tensor, "example"], brightness: float = 0.5) -> Labelled:
    """Pictures with a grey mark of 3 x 2 pixels at the top edge whose place says a class number: a shortcut."""
    inputs = pictures.inputs.clone()
    rows = torch.arange(len(inputs), device=inputs.device)
    for line in range(3):
        for place in range(2):
            inputs[rows, 0, line, 2 * codes + place] = brightness
    return Labelled(inputs, pictures.labels)
