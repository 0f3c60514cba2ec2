"""Reviews and news as numbered words."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from tangentlens.measures.cooccurrence import Cooccurrence, PolarityLists, cooccurrence, polarity_lists
from tangentlens.studies.datasets import Texts, ag_news, imdb, sst2

_BLANKS = str.maketrans(string.punctuation, " " * len(string.punctuation))


@dataclass(frozen=True, eq=False)
class Task:
    """Training and test documents, their labels, and the words behind the numbers; 0 is padding."""

    name: str
    documents: tuple[Int[Tensor, "_position"], ...]
    labels: Int[Tensor, "example"]
    test_documents: tuple[Int[Tensor, "_position"], ...]
    test_labels: Int[Tensor, "_test"]
    words: tuple[str, ...]
    classes: tuple[str, ...]

    @cached_property
    def number(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words) if number}

    @cached_property
    def counts(self) -> Cooccurrence:
        """Occurrences of each word number by label."""
        pairs = ((document.tolist(), label) for document, label in zip(self.documents, self.labels.tolist()))
        return cooccurrence(pairs, labels=range(len(self.classes)))

    def polarity(self, minimum: float = 5) -> PolarityLists:
        """Word numbers that lean to the second class, to the first, and to neither."""
        rows = polarity_lists(self.counts.counts, minimum=minimum)
        tokens = torch.tensor(self.counts.tokens)
        return PolarityLists(tokens[rows.positive], tokens[rows.negative], tokens[rows.neutral])


def words_of(text: str) -> list[str]:
    """Lower case, punctuation as blanks: 13,824 kinds of words on SST, where the authors' file holds 13,822."""
    return text.lower().translate(_BLANKS).split()


def sst(folder: Path | None = None) -> Task:
    return _task("SST-2", sst2("train", folder), sst2("test", folder))


def reviews(folder: Path | None = None, examples: int | None = None) -> Task:
    """IMDB; classes alternate in the files, so the first examples are balanced."""
    train, test = imdb("train", folder), imdb("test", folder)
    return _task("IMDB", train.first(examples or len(train)), test.first(examples or len(test)))


def news(folder: Path | None = None) -> Task:
    return _task("AG News", ag_news("train", folder), ag_news("test", folder))


def _task(name: str, train: Texts, test: Texts) -> Task:
    number: dict[str, int] = {}
    documents, kept = [], []
    for place, text in enumerate(train.texts):
        words = words_of(text)
        if words:
            documents.append(torch.tensor([number.setdefault(word, 1 + len(number)) for word in words]))
            kept.append(place)
    test_documents, test_kept = _known(test.texts, number)
    return Task(
        name, tuple(documents), train.labels[kept], test_documents, test.labels[test_kept],
        ("", *number), train.classes,
    )  # fmt: skip


def _known(texts: Sequence[str], number: dict[str, int]) -> tuple[tuple[Tensor, ...], list[int]]:
    """Documents in the words of training; a document without any of them says nothing and is left out."""
    documents, kept = [], []
    for place, text in enumerate(texts):
        numbers = [number[word] for word in words_of(text) if word in number]
        if numbers:
            documents.append(torch.tensor(numbers))
            kept.append(place)
    return tuple(documents), kept
