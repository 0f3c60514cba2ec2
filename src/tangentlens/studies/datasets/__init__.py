"""Public data the studies run on, read from a folder the user has; nothing is downloaded and nothing is bundled."""

from __future__ import annotations

from tangentlens.studies.datasets.folder import MissingData, data_folder
from tangentlens.studies.datasets.images import Images, celeba, cifar10, mnist, svhn
from tangentlens.studies.datasets.texts import (
    Texts,
    ag_news,
    imdb,
    own_text,
    penn_treebank,
    sst2,
    tiny_shakespeare,
    wikitext2,
)

__all__ = [
    "Images", "MissingData", "Texts", "ag_news", "celeba", "cifar10", "data_folder", "imdb", "mnist", "own_text",
    "penn_treebank", "sst2", "svhn", "tiny_shakespeare", "wikitext2",
]  # fmt: skip
