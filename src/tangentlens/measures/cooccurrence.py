"""How often each word or n-gram stands in documents of each label: the statistic a text model's scores follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.errors import BadInput

Document = Sequence[Any] | Tensor | np.ndarray
"""The words of one text, as texts or as numbers."""


@dataclass(frozen=True)
class Cooccurrence:
    """Occurrences of each word or n-gram by label; `counts[i]` belongs to `tokens[i]`, the commonest first.

    Two of them add, so a large corpus can be counted in parts.
    """

    tokens: tuple[Hashable, ...]
    labels: tuple[Hashable, ...]
    counts: Float[Tensor, "token label"]
    documents: Float[Tensor, "label"]
    row: dict[Hashable, int] = field(repr=False, compare=False)

    def of(self, tokens: Sequence[Any]) -> Float[Tensor, "token label"]:
        """The counts of the words asked for; a word never seen is an error that names it.

        An n-gram is found by the list or tuple of its words, or by its words in one string.

        >>> cooccurrence([(["not", "bad"], 1), (["bad"], 0)], ngram=2).of(["not bad"]).tolist()
        [[0.0, 1.0]]
        """
        rows = [self._row_of(token) for token in tokens]
        unseen = [token for token, row in zip(tokens, rows) if row is None]
        if unseen:
            raise BadInput(f"{len(unseen)} words never occur in the corpus, {unseen[:5]} among them; leave them out")
        return self.counts[[row for row in rows if row is not None]]

    def _row_of(self, token: Any) -> int | None:
        plain = _plain(token)
        if not isinstance(plain, list | tuple):
            words = tuple(plain.split()) if isinstance(plain, str) else ()
            return self.row[plain] if plain in self.row else self.row.get(words)
        return self.row.get(plain[0] if len(plain) == 1 else tuple(plain))

    def __add__(self, other: Cooccurrence) -> Cooccurrence:
        if self.labels != other.labels:
            raise BadInput(
                f"counts over labels {self.labels} and {other.labels} do not add; name the same labels in both"
            )
        counters = _counters(self)
        for mine, theirs in zip(counters, _counters(other)):
            mine.update(theirs)
        return _from_counters(counters, self.labels, self.documents + other.documents)


def cooccurrence(
    corpus: Iterable[tuple[Document, Any]],
    *,
    ngram: int = 1,
    labels: Sequence[Any] | Tensor | None = None,
    minimum: int = 1,
    once_per_document: bool = False,
) -> Cooccurrence:
    """n_{w,k}: occurrences of w in documents of label k, from (words, label) pairs read one at a time.

    n-grams longer than one are tuples; words and labels of a tensor or an array are read as plain numbers. Words rarer
    than `minimum` are dropped at the end. Cost: one pass, and memory for the distinct n-grams alone.

    >>> seen = cooccurrence([(["a", "fine", "film"], 1), (["a", "dull", "film"], 0), (["fine"], 1)])
    >>> seen.labels, seen.of(["fine", "film"]).tolist()
    ((0, 1), [[0.0, 2.0], [1.0, 1.0]])
    """
    if ngram < 1:
        raise BadInput(f"ngram is the number of words in a row, at least 1, got {ngram}")
    named = None if labels is None else tuple(_plain(label) for label in labels)
    if named is not None and len(set(named)) < len(named):
        raise BadInput(f"labels are the columns of the counts, each once, got {named}; name every label once")
    counters: dict[Hashable, Counter[Hashable]] = {label: Counter() for label in named or ()}
    documents: Counter[Hashable] = Counter()
    for number, (given, labelled) in enumerate(corpus):
        words, label = _words(given), _plain(labelled)
        if isinstance(words, str):
            raise BadInput(f"document {number} is a string, {words[:30]!r}; split it into words first")
        if not isinstance(words, Sequence) or (len(words) and isinstance(words[0], list)):
            raise BadInput(f"document {number} should be one list of words, got {str(given)[:30]!r}")
        if not len(words):
            raise BadInput(f"document {number}, label {label!r}, is empty; leave it out")
        if named is not None and label not in counters:
            raise BadInput(f"document {number} has label {label!r}; the labels named are {named}")
        items = list(words) if ngram == 1 else [tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)]
        counters.setdefault(label, Counter()).update(set(items) if once_per_document else items)
        documents[label] += 1
    if not documents:
        raise BadInput("expected at least one (words, label) pair, got none")
    order = named if named is not None else tuple(sorted(counters, key=lambda k: (str(type(k)), k)))
    per_document = torch.tensor([float(documents[label]) for label in order], dtype=torch.float64)
    return _from_counters([counters[label] for label in order], order, per_document, minimum)


def _words(document: Any) -> Any:
    """A document as a list: numbers of a tensor are objects of their own, and no two of them would count as equal."""
    words = _plain(document)
    return [_plain(word) for word in words] if isinstance(words, list | tuple) and _boxed(words) else words


def _boxed(words: Sequence[Any]) -> bool:
    return bool(len(words)) and hasattr(words[0], "tolist")


def _plain(value: Any) -> Any:
    """What a tensor, an array or one number of either holds; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _counters(counted: Cooccurrence) -> list[Counter[Hashable]]:
    columns = counted.counts.long().T.tolist()
    return [Counter(dict(zip(counted.tokens, column))) for column in columns]


def _from_counters(
    counters: Sequence[Counter[Hashable]],
    labels: tuple[Hashable, ...],
    documents: Float[Tensor, "label"],
    minimum: int = 1,
) -> Cooccurrence:
    whole: Counter[Hashable] = Counter()
    for counter in counters:
        whole.update(counter)
    tokens = tuple(token for token, times in whole.most_common() if times >= minimum)
    rows = [[float(counter[token]) for counter in counters] for token in tokens]
    counts = torch.tensor(rows, dtype=torch.float64).reshape(len(tokens), len(labels))
    return Cooccurrence(tokens, labels, counts, documents, {token: row for row, token in enumerate(tokens)})


def difference(counts: Float[Tensor, "token label"]) -> Float[Tensor, "token"]:
    """n+ - n-, the second label against the first: what early training follows, when documents are unfitted."""
    _two_labels(counts)
    return counts[:, 1] - counts[:, 0]


def rates(counts: Float[Tensor, "token label"]) -> Float[Tensor, "token"]:
    """(n+ - n-) / (n+ + n-), the second label against the first, as the authors' code defines a word's polarity."""
    _two_labels(counts)
    return (counts[:, 1] - counts[:, 0]) / counts.sum(1)


def shares(counts: Float[Tensor, "token label"]) -> Float[Tensor, "token label"]:
    """n_{w,k} / n_w: how a word's occurrences spread over labels; rows sum to one."""
    return counts / counts.sum(1, keepdim=True)


def pmi(counts: Float[Tensor, "token label"], smoothing: float = 0.0) -> Float[Tensor, "token label"]:
    """log p(w, k) / (p(w) p(k)); -inf where a word never meets a label, unless `smoothing` is added to every count.

    NaN where the word or the label never occurs at all: nothing is known of what it keeps company with.

    >>> pmi(torch.tensor([[4.0, 0.0], [0.0, 4.0]]), smoothing=0.0)[0, 0].exp().item()
    2.0
    """
    if smoothing < 0:
        raise BadInput(f"smoothing is added to every count, at least 0, got {smoothing:g}")
    joint = (counts + smoothing) / (counts + smoothing).sum()
    return torch.log(joint / (joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)))


@dataclass(frozen=True)
class PolarityLists:
    """Rows of words that lean to the second label, to the first, and to neither."""

    positive: Int[Tensor, "positive"]
    negative: Int[Tensor, "negative"]
    neutral: Int[Tensor, "neutral"]


def polarity_lists(
    counts: Float[Tensor, "token label"],
    *,
    rate: float = 0.5,
    minimum: float = 5,
    neutral_rate: float = 0.1,
    neutral_difference: float = 5,
) -> PolarityLists:
    """Positive: rate > .5 and n+ > 5; negative in mirror image; neutral: |rate| < .1 and |n+ - n-| < 5.

    The thresholds are those of the authors' code for SST; they take 50 as the minimum on IMDB.
    """
    leaning, gap = rates(counts), difference(counts)
    return PolarityLists(
        torch.nonzero((leaning > rate) & (counts[:, 1] > minimum)).flatten(),
        torch.nonzero((leaning < -rate) & (counts[:, 0] > minimum)).flatten(),
        torch.nonzero((leaning.abs() < neutral_rate) & (gap.abs() < neutral_difference)).flatten(),
    )


def context_counts(tokens: Int[Tensor, "position"], vocabulary: int, window: int) -> Float[Tensor, "token other_token"]:
    """How often a target follows a context word at any earlier place of the same window: row context, column target.

    Windows of `window` words stand side by side, as in language-model batches. Cost: tokens * window / 2 pairs and one
    vocabulary^2 table.
    """
    if tokens.ndim != 1 or len(tokens) < 2:
        raise BadInput(f"expected a text of at least two tokens, in a row, got shape {tuple(tokens.shape)}")
    if window < 2:
        raise BadInput(f"a window holds a context word and a target, at least 2 words, got {window}")
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocabulary:
        raise BadInput(
            f"expected token numbers 0..{vocabulary - 1} of a vocabulary of {vocabulary}, got "
            f"{int(tokens.min())}..{int(tokens.max())}; raise vocabulary= or map the others to the unknown word"
        )
    counts = torch.zeros(vocabulary * vocabulary, dtype=torch.float64)
    for row in _windows(tokens, window):
        for distance in range(1, row.shape[1]):
            pairs = (row[:, :-distance] * vocabulary + row[:, distance:]).flatten()
            counts.index_add_(0, pairs, torch.ones(len(pairs), dtype=torch.float64))
    return counts.reshape(vocabulary, vocabulary)


def _windows(tokens: Int[Tensor, "position"], window: int) -> list[Int[Tensor, "_example _position"]]:
    whole = len(tokens) // window * window
    parts = [tokens[:whole].reshape(-1, window)] if whole else []
    return [*parts, tokens[None, whole:]] if len(tokens) - whole > 1 else parts


def _two_labels(counts: Float[Tensor, "token label"]) -> None:
    if counts.shape[1] != 2:
        raise BadInput(f"a rate needs two labels, got {counts.shape[1]}; use shares or pmi, or pick two columns")
