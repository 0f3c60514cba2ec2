"""Labelled images: channels first, values from 0 to 1."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.studies.datasets.folder import MissingData, data_file

Split = Literal["train", "test"]
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS = tuple(map(str, range(10)))


@dataclass(frozen=True, eq=False)
class Images:
    """Pictures with the number of their class."""

    inputs: Float[Tensor, "example channel row column"]
    labels: Int[Tensor, "example"]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Images:
        """The first examples; the files of these datasets are not sorted by class."""
        return Images(self.inputs[:count], self.labels[:count], self.classes)


def mnist(split: Split = "train", folder: Path | str | None = None, *, examples: int | None = None) -> Images:
    """MNIST, 28 x 28 digits: 60,000 to train on, 10,000 to test (LeCun et al. 1998), or the first of them."""
    prefix = "train" if split == "train" else "t10k"
    pixels = _idx(data_file("mnist", f"{prefix}-images-idx3-ubyte.gz", folder))
    labels = _idx(data_file("mnist", f"{prefix}-labels-idx1-ubyte.gz", folder))
    classes = torch.from_numpy(labels[:examples].astype(np.int64))
    return Images(_scaled(pixels[:examples, None]), classes, DIGITS)


def cifar10(split: Split = "train", folder: Path | str | None = None) -> Images:
    """CIFAR-10, 32 x 32 colour (Krizhevsky 2009): all of it from `cifar10.npz`, or the subset `cifar10_4k_1k.npz`."""
    try:
        file = data_file("cifar10", "cifar10.npz", folder)
    except MissingData:
        file = data_file("cifar10", "cifar10_4k_1k.npz", folder)
    with np.load(file) as arrays:
        pixels, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    inputs = _scaled(np.moveaxis(pixels, 3, 1))
    return Images(inputs, torch.from_numpy(labels.reshape(-1).astype(np.int64)), CIFAR10_CLASSES)


def svhn(split: Split = "train", folder: Path | str | None = None) -> Images:
    """Street View House Numbers, cropped digits (Netzer et al. 2011), from `svhn/{split}_32x32.mat`."""
    from scipy.io import loadmat

    arrays = loadmat(data_file("svhn", f"{split}_32x32.mat", folder))
    labels = arrays["y"].reshape(-1).astype(np.int64) % 10  # the files write the digit 0 as class 10
    return Images(_scaled(np.transpose(arrays["X"], (3, 2, 0, 1))), torch.from_numpy(labels), DIGITS)


def celeba(
    attribute: str,
    split: Split = "train",
    folder: Path | str | None = None,
    *,
    size: int = 96,
    examples: int | None = None,
) -> Images:
    """CelebA faces (Liu et al. 2015), square crops of `size`, labelled by one attribute such as `Eyeglasses`.

    Reads `celeba/img_align_celeba/*.jpg`, `list_attr_celeba.txt` and `list_eval_partition.txt`; needs Pillow.
    """
    pictures = data_file("celeba", "img_align_celeba", folder)
    lines = data_file("celeba", "list_attr_celeba.txt", folder).read_text(encoding="utf-8").splitlines()
    names = lines[1].split()
    if attribute not in names:
        raise ValueError(f"attribute is one of {', '.join(names)}, got {attribute!r}")
    wanted = {"train": "0", "test": "2"}[split]
    parts = data_file("celeba", "list_eval_partition.txt", folder).read_text(encoding="utf-8").splitlines()
    chosen = {line.split()[0] for line in parts if line.split()[1:] == [wanted]}
    rows = [row.split() for row in lines[2:] if row.split()[0] in chosen][:examples]
    pixels = np.stack([_cropped(pictures / row[0], size) for row in rows])
    labels = [int(row[1 + names.index(attribute)] == "1") for row in rows]
    return Images(_scaled(np.moveaxis(pixels, 3, 1)), torch.tensor(labels), (f"not {attribute}", attribute))


def _idx(file: Path) -> np.ndarray:
    """The idx format: two zero bytes, type 8 (unsigned byte), number of axes, their sizes, then the values."""
    raw = gzip.decompress(file.read_bytes())
    if raw[:3] != b"\x00\x00\x08":
        raise ValueError(f"{file} should be an idx file of unsigned bytes, got {raw[:4]!r}; get the original")
    sizes = np.frombuffer(raw, dtype=">u4", count=raw[3], offset=4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3]).reshape(sizes.tolist())


def _scaled(pixels: np.ndarray) -> Tensor:
    return torch.from_numpy(pixels.astype(np.float32) / np.float32(255)).contiguous()


def _cropped(file: Path, size: int) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("CelebA comes as JPEG files; install Pillow to read them: pip install pillow") from error

    with Image.open(file) as picture:
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        square = picture.convert("RGB").crop((left, top, left + side, top + side)).resize((size, size))
        return np.asarray(square)
