"""Labelled sentences and plain text."""

from __future__ import annotations

import csv
import gzip
import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from tangentlens.errors import BadInput
from tangentlens.studies.datasets.folder import MissingData, any_data_file, data_file

SENTIMENTS = ("negative", "positive")
TOPICS = ("World", "Sports", "Business", "Sci/Tech")


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts with the number of their class."""

    texts: tuple[str, ...]
    labels: Int[Tensor, "example"]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Texts:
        return Texts(self.texts[:count], self.labels[:count], self.classes)


def sst2(split: Literal["train", "dev", "test"] = "train", folder: Path | str | None = None) -> Texts:
    """Stanford Sentiment, two classes, whole sentences, lower case and tokenised (Socher et al. 2013)."""
    lines = data_file("sst2", f"{split}.tsv", folder).read_text(encoding="utf-8").splitlines()
    return _texts(_rows(lines, "\t", csv.QUOTE_NONE), "sentence", "label", SENTIMENTS)


def imdb(split: Literal["train", "test"] = "train", folder: Path | str | None = None) -> Texts:
    """IMDB reviews (Maas et al. 2011); classes alternate, so the first examples are balanced.

    Read from `{split}.tsv.xz`, or from the folder aclImdb as its authors' archive unpacks.
    """
    found = any_data_file("imdb", (f"{split}.tsv.xz", f"aclImdb/{split}"), folder)
    if found.is_dir():
        return _reviews(found)
    with lzma.open(found, "rt", encoding="utf-8", newline="") as file:
        return _texts(_rows(file, "\t", csv.QUOTE_NONE), "text", "label", SENTIMENTS)


def ag_news(split: Literal["train", "test"] = "train", folder: Path | str | None = None) -> Texts:
    """AG News, title and text joined: `train.csv` and `test.csv` as published, classes from 1, plain or gzipped.

    Before a training file of that form comes `train_raw.csv.gz`, texts with columns text and label.
    """
    short = ("train_raw.csv.gz",) if split == "train" else ()
    found = any_data_file("ag_news", (*short, f"{split}.csv.gz", f"{split}.csv"), folder)
    with _opened(found) as file:
        if found.name in short:
            return _texts(csv.DictReader(file), "text", "label", TOPICS)
        rows = list(csv.reader(file))
    labels = torch.tensor([int(row[0]) - 1 for row in rows])
    return Texts(tuple(" ".join(row[1:]) for row in rows), labels, TOPICS)


def tiny_shakespeare(folder: Path | str | None = None) -> str:
    """1.1 million characters of Shakespeare, as one string."""
    return gzip.decompress(data_file("tinyshakespeare", "input.txt.gz", folder).read_bytes()).decode("utf-8")


def wikitext2(split: Literal["train", "valid", "test"] = "valid", folder: Path | str | None = None) -> str:
    """WikiText-2 (Merity et al. 2016) as one string: `wikitext2/wiki.{split}.tokens`, or `wikitext2_valid_test`.

    The second folder has no training part.
    """
    try:
        return data_file("wikitext2", f"wiki.{split}.tokens", folder).read_text(encoding="utf-8")
    except MissingData:
        if split == "train":
            raise
    file = data_file("wikitext2_valid_test", f"{split}.txt.gz", folder)
    return gzip.decompress(file.read_bytes()).decode("utf-8")


def penn_treebank(split: Literal["train", "valid", "test"] = "train", folder: Path | str | None = None) -> str:
    """The Penn Treebank as language models read it (Mikolov et al. 2010), a sentence a line: `ptb/ptb.{split}.txt`."""
    return with_line_ends(data_file("ptb", f"ptb.{split}.txt", folder).read_text(encoding="utf-8"))


def own_text(split: Literal["train", "test"] = "train", folder: Path | str | None = None) -> str:
    """A text of the user's, words parted by blanks and a sentence a line: `text/{split}.txt`."""
    return with_line_ends(data_file("text", f"{split}.txt", folder).read_text(encoding="utf-8"))


def with_line_ends(text: str) -> str:
    """Each line closed by <eos>, as language models are trained on the Penn Treebank.

    >>> with_line_ends("no it was\\n\\nyes").split()
    ['no', 'it', 'was', '<eos>', 'yes', '<eos>']
    """
    return " ".join(f"{line.strip()} <eos>" for line in text.splitlines() if line.strip())


def _opened(file: Path) -> TextIOWrapper:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8", newline="")
    return file.open(encoding="utf-8", newline="")


def _reviews(folder: Path) -> Texts:
    """One file a review, a folder a class."""
    sides = [sorted((folder / side).glob("*.txt")) for side in ("neg", "pos")]
    if not all(sides) or len(sides[0]) != len(sides[1]):
        raise BadInput(f"expected as many reviews in {folder}/neg as in pos, got {len(sides[0])} and {len(sides[1])}")
    files = [file for pair in zip(*sides) for file in pair]
    texts = tuple(file.read_text(encoding="utf-8") for file in files)
    return Texts(texts, torch.arange(len(files)) % 2, SENTIMENTS)


def _rows(lines: Iterable[str], delimiter: str, quoting: Literal[0, 1, 2, 3]) -> Iterable[dict[str, str]]:
    csv.field_size_limit(10_000_000)  # a review may be longer than the reader's default of 131,072 characters
    return csv.DictReader(lines, delimiter=delimiter, quoting=quoting)


def _texts(rows: Iterable[dict[str, str]], text: str, label: str, classes: tuple[str, ...]) -> Texts:
    table = list(rows)
    if not table or not {text, label} <= set(table[0]):
        columns = list(table[0]) if table else "no rows"
        raise BadInput(f"expected labelled texts in columns named {text} and {label}, got {columns}")
    labels = torch.tensor([int(row[label]) for row in table])
    return Texts(tuple(row[text] for row in table), labels, classes)
