"""Language models as classifiers of the next word: the notebook's leak, its test, and controls that can fail."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from math import exp
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tangentlens.kernels.causal_leak import causal_leak
from tangentlens.kernels.token_scores import label_scores, last_position
from tangentlens.measures.cooccurrence import context_counts
from tangentlens.measures.matched_targets import (
    Targets,
    matched_targets,
    medians_apart,
    share_above,
    targets_by_pmi,
    targets_by_share,
)
from tangentlens.studies.datasets import MissingData, own_text, penn_treebank, tiny_shakespeare, wikitext2
from tangentlens.studies.sun2023.language_model import LanguageModel

WINDOW, BATCH = 35, 20
UNKNOWN = "<unk>"


@dataclass(frozen=True)
class Language:
    """A text as numbers of its commonest words, cut into a part to train on and a part to test on."""

    name: str
    train: Int[Tensor, "position"]
    test: Int[Tensor, "_test"]
    words: tuple[str, ...]

    @property
    def counts(self) -> Float[Tensor, "token other_token"]:
        """(context, target) pairs at any distance inside a window, as in the notebook."""
        return context_counts(self.train, len(self.words), WINDOW)

    @property
    def bigrams(self) -> Float[Tensor, "token other_token"]:
        """(context, target) pairs of neighbours: what a word fed alone is followed by."""
        size = len(self.words)
        pairs = torch.bincount(self.train[:-1] * size + self.train[1:], minlength=size * size)
        table = pairs.reshape(size, size).double()
        table[:, 0] = 0
        return table


def shakespeare(folder: Path | None = None, vocabulary: int = 2000) -> Language:
    words = re.findall(r"[a-z']+|[.,;:!?]", tiny_shakespeare(folder).lower())
    cut = len(words) * 9 // 10
    return _language("Tiny Shakespeare", words[:cut], words[cut:], vocabulary)


def wikipedia(folder: Path | None = None, vocabulary: int = 2000) -> Language:
    """WikiText-2: trained on its training part, or on its test part where the folder has no other; tested on valid."""
    try:
        train = wikitext2("train", folder)
    except MissingData:
        train = wikitext2("test", folder)
    return _language("WikiText-2", train.split(), wikitext2("valid", folder).split(), vocabulary)


def treebank(folder: Path | None = None, vocabulary: int = 2000) -> Language:
    words = [penn_treebank(split, folder).split() for split in ("train", "test")]
    return _language("PTB", words[0], words[1], vocabulary)


def own(folder: Path | None = None, vocabulary: int = 2000) -> Language:
    words = [own_text(split, folder).split() for split in ("train", "test")]
    return _language("own text", words[0], words[1], vocabulary)


TEXTS = {"Tiny Shakespeare": shakespeare, "WikiText-2": wikipedia, "PTB": treebank, "own text": own}


def _language(name: str, train: list[str], test: list[str], vocabulary: int) -> Language:
    common = [word for word, _ in Counter(train).most_common(vocabulary) if word != UNKNOWN][: vocabulary - 1]
    number = {word: place for place, word in enumerate([UNKNOWN, *common])}
    coded = [torch.tensor([number.get(word, 0) for word in part]) for part in (train, test)]
    return Language(name, coded[0], coded[1], (UNKNOWN, *common))


@dataclass(frozen=True)
class LanguageRun:
    """Each way of choosing targets, for the trained model, the untrained one and a unigram-only scorer.

    `notebook` is the share of contexts whose medians are apart, the others hold the share of pairs in order of each
    context.
    """

    notebook: dict[str, float]
    association: dict[str, list[float]]
    matched: dict[str, list[float]]
    matched_next: dict[str, list[float]]
    leak: float
    leak_unmasked: float
    perplexity: float
    perplexity_unmasked: float
    unigram_perplexity: float


def language_run(
    text: Language, seed: int, *, epochs: int, width: int = 64, contexts: int = 20, unmasked_epochs: int = 1
) -> LanguageRun:
    """Train with the causal mask and score the most frequent words alone; once more without it, for the leak."""
    model = _trained(text, seed, epochs, width, causal=True)
    open_model = _trained(text, seed, unmasked_epochs, width, causal=False)
    counts = text.counts
    frequency = torch.bincount(text.train, minlength=len(text.words)).double()
    ranked = frequency.argsort(descending=True)
    chosen = ranked[ranked != 0][:contexts]  # not the unknown word
    counts[:, 0] = 0  # nor as a target: it stands for many words
    scorers = {
        "trained": label_scores(model, chosen.tolist(), outputs=last_position),
        "untrained": label_scores(_model(text, seed, width, True), chosen.tolist(), outputs=last_position),
        "unigram": torch.log(frequency + 0.5).expand(contexts, -1),
    }
    probe = text.test[: 4 * WINDOW].reshape(4, WINDOW)
    return LanguageRun(
        {name: float(medians_apart(s, targets_by_share(counts, chosen))) for name, s in scorers.items()},
        {name: _shares(s, targets_by_pmi(counts, chosen, minimum=200)) for name, s in scorers.items()},
        {name: _shares(s, matched_targets(counts, chosen, minimum=200)) for name, s in scorers.items()},
        {name: _shares(s, matched_targets(text.bigrams, chosen, minimum=20)) for name, s in scorers.items()},
        causal_leak(model, probe, len(text.words)),
        causal_leak(open_model, probe, len(text.words)),
        perplexity(model, text.test),
        perplexity(open_model, text.test),
        _unigram_perplexity(text, frequency),
    )


def _shares(scores: Tensor, targets: Targets) -> list[float]:
    return share_above(scores, targets).tolist()


def _model(text: Language, seed: int, width: int, causal: bool) -> LanguageModel:
    return LanguageModel(len(text.words), width, hidden=width, causal=causal, seed=seed)


def _trained(text: Language, seed: int, epochs: int, width: int, *, causal: bool) -> LanguageModel:
    """Adam instead of the notebook's SGD at rate 5: the same test in a tenth of the epochs."""
    model = _model(text, seed, width, causal)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    random = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(epochs):
            model.train()
            rows = _rows(text.train)
            for part in torch.randperm(len(rows), generator=random).split(BATCH):
                optimiser.zero_grad(set_to_none=True)
                _loss(model, rows[part]).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimiser.step()
    return model.eval()


def _rows(tokens: Int[Tensor, "position"]) -> Int[Tensor, "example window"]:
    """Windows with the word that follows, side by side."""
    whole = (len(tokens) - 1) // WINDOW * WINDOW
    return torch.cat([tokens[:whole].reshape(-1, WINDOW), tokens[WINDOW : whole + 1 : WINDOW, None]], 1)


def _loss(model: nn.Module, rows: Int[Tensor, "example window"]) -> Float[Tensor, ""]:
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def perplexity(model: nn.Module, tokens: Int[Tensor, "position"]) -> float:
    with torch.no_grad():
        rows = _rows(tokens)
        return exp(sum(float(_loss(model, part)) * len(part) for part in rows.split(100)) / len(rows))


def _unigram_perplexity(text: Language, frequency: Float[Tensor, "token"]) -> float:
    chance = (frequency + 0.5) / (frequency + 0.5).sum()
    return exp(float(-torch.log(chance)[text.test].mean()))
