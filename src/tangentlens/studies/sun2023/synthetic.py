"""Made-up corpora with one property each: S1 co-occurrence, S2 imbalance, S3 order and XOR, S4 negation, S5 language.

Token numbers start at 1; 0 is padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents of numbered words, a 0/1 label each, and groups of words with a name."""

    documents: tuple[Int[Tensor, "_position"], ...]
    labels: Int[Tensor, "example"]
    groups: dict[str, tuple[int, ...]]
    vocabulary: int

    def counts(self) -> Float[Tensor, "token label"]:
        """Occurrences by label, row = token number."""
        table = torch.zeros(self.vocabulary, 2, dtype=torch.float64)
        for document, label in zip(self.documents, self.labels.tolist()):
            table[:, label] += torch.bincount(document, minlength=self.vocabulary)
        return table


def polar_words(*, examples: int = 1000, prior: float = 0.5, kinds: int = 20, length: int = 6, seed: int = 0) -> Corpus:
    """S1, and S2 at prior .8: each place is polar with chance .5, and then of its document's class with chance .85."""
    random = torch.Generator().manual_seed(seed)
    labels = (torch.rand(examples, generator=random) < prior).long()
    polar = torch.rand(examples, length, generator=random) < 0.5
    own = torch.rand(examples, length, generator=random) < 0.85
    positive = labels[:, None].bool() == own
    kind = torch.randint(0, kinds, (examples, length), generator=random)
    block = torch.where(polar, torch.where(positive, 0, 1), 2)
    names = ("positive", "negative", "neutral")
    groups = {name: tuple(range(1 + kinds * i, 1 + kinds * (i + 1))) for i, name in enumerate(names)}
    return Corpus(tuple(1 + kinds * block + kind), labels, groups, 1 + 3 * kinds)


def word_order(*, examples: int = 300, length: int = 6, seed: int = 0) -> Corpus:
    """S3a: "A B" is positive and "B A" negative, among 4 filler words; no single word tells."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (examples,), generator=random)
    pairs = torch.where(labels[:, None] == 1, torch.tensor([1, 2]), torch.tensor([2, 1]))
    documents = _among_fillers(pairs, fillers=(3, 4, 5, 6), length=length, random=random)
    return Corpus(documents, labels, {"pair": (1, 2), "filler": (3, 4, 5, 6)}, 7)


def adjacent_xor(*, examples: int = 300, length: int = 6, seed: int = 0) -> Corpus:
    """S3b: one of a1, a2 and then one of b1, b2; the label is their XOR, among 3 filler words."""
    random = torch.Generator().manual_seed(seed)
    first, second = torch.randint(0, 2, (2, examples), generator=random)
    documents = _among_fillers(torch.stack([1 + first, 3 + second], 1), (5, 6, 7), length, random)
    return Corpus(documents, first ^ second, {"first": (1, 2), "second": (3, 4), "filler": (5, 6, 7)}, 8)


def _among_fillers(
    pairs: Int[Tensor, "example 2"], fillers: tuple[int, ...], length: int, random: torch.Generator
) -> tuple[Int[Tensor, "_position"], ...]:
    documents = torch.tensor(fillers)[torch.randint(0, len(fillers), (len(pairs), length), generator=random)]
    place = torch.randint(0, length - 1, (len(pairs), 1), generator=random)
    return tuple(documents.scatter(1, torch.cat([place, place + 1], 1), pairs))


NOT = 17
BEGIN = 28


def negated_adjectives(
    *, examples: int = 400, length: int = 4, negated_positive: int = 55, negated_negative: int = 26, seed: int = 0
) -> Corpus:
    """S4: one of 8 + 8 adjectives, "not" before it at times, among 10 fillers; label = polarity times negation.

    Positive adjectives are negated more often, as in reviews, so "not" itself leans negative. How many documents of
    each side are negated is fixed, at the numbers of the independent run: drawn anew for each seed, they alone move
    every accuracy of the table by as much as the architectures differ. It states no length of text: at four words the
    accuracies come out as its own, longer texts bury the phrase among more windows and take longer to learn.
    """
    random = torch.Generator().manual_seed(seed)
    polarity = torch.randint(0, 2, (examples,), generator=random)
    adjective = 1 + torch.randint(0, 8, (examples,), generator=random) + 8 * (1 - polarity)
    negated = torch.zeros(examples, dtype=torch.long)
    for side, number in ((1, negated_positive), (0, negated_negative)):
        rows = torch.nonzero(polarity == side).flatten()
        negated[rows[torch.randperm(len(rows), generator=random)[:number]]] = 1
    fillers = torch.randint(NOT + 1, BEGIN, (examples, length), generator=random)
    documents = []
    for row in range(examples):
        words = [NOT, int(adjective[row])] if negated[row] else [int(adjective[row])]
        place = int(torch.randint(0, length - len(words) + 1, (1,), generator=random))
        documents.append(fillers[row].clone())
        documents[-1][place : place + len(words)] = torch.tensor(words)
    groups = {"positive": tuple(range(1, 9)), "negative": tuple(range(9, 17)), "not": (NOT,),
              "filler": tuple(range(NOT + 1, BEGIN))}  # fmt: skip
    return Corpus(tuple(documents), polarity ^ negated, groups, BEGIN + 1)


def markov_text(
    *, kinds: int = 40, sequences: int = 300, length: int = 13, followers: int = 6, seed: int = 0
) -> Int[Tensor, "example position"]:
    """S5: a sparse Markov chain whose words differ in frequency as in Zipf's law; words are 0..kinds-1."""
    random = torch.Generator().manual_seed(seed)
    zipf = 1 / torch.arange(1, kinds + 1, dtype=torch.float64)
    allowed = torch.zeros(kinds, kinds, dtype=torch.float64)
    for word in range(kinds):
        allowed[word, torch.multinomial(zipf, followers, generator=random)] = 1
    transition = allowed * zipf * torch.rand(kinds, kinds, generator=random, dtype=torch.float64)
    transition = 0.9 * transition / transition.sum(1, keepdim=True) + 0.1 * zipf / zipf.sum()
    text = torch.empty(sequences, length, dtype=torch.long)
    text[:, 0] = torch.multinomial(zipf, sequences, replacement=True, generator=random)
    for place in range(1, length):
        text[:, place] = torch.multinomial(transition[text[:, place - 1]], 1, generator=random).flatten()
    return text
