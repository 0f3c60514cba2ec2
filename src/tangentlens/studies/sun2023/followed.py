"""Short trainings kept as runs, for the report: word scores, bias, negation, and flow beside training, over steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tangentlens.kernels.infinite_width import Deviations, mlp_kernel, token_counts
from tangentlens.kernels.token_scores import label_scores
from tangentlens.measures.cooccurrence import cooccurrence
from tangentlens.measures.kernel_flow import kernel_flow
from tangentlens.studies.sun2023.imbalance import RATE, SETTINGS
from tangentlens.studies.sun2023.models import MatrixVector, TextModel, TokenCNN, TokenMLP
from tangentlens.studies.sun2023.synthetic import NOT, Corpus, negated_adjectives, polar_words
from tangentlens.studies.sun2023.training import step_of, train_on_counts, train_on_documents

if TYPE_CHECKING:
    from tangentlens.record import Measure

LABELS = ("negative", "positive")


def followed_runs(folder: Path, seed: int = 0) -> list[str]:
    """Everything below, one run each; returns their folders."""
    runs = [followed_bias(folder / f"bias {name}", name, seed) for name in ("ReLU s_v=.01", "GeLU s_v=.01")]
    runs += [followed_negation(folder / f"negation {kind.__name__}", kind, seed) for kind in (TokenCNN, MatrixVector)]
    return [*runs, followed_flow(folder / "flow beside training", seed)]


def followed_bias(run: Path, setting: str, seed: int, steps: int = 1000) -> str:
    """S2 under the released recipe."""
    activation, readout = SETTINGS[setting]
    corpus = polar_words(prior=0.8, seed=seed)
    model = TokenMLP(
        corpus.vocabulary, 64, labels=2, activation=activation, deviations=Deviations(0.1, 0.1, readout), seed=seed
    )
    optimiser = torch.optim.Adagrad(model.parameters(), lr=RATE)
    return _followed(run, model, corpus, optimiser, steps, _of_kernels(corpus), centred=False, seed=seed)


def followed_flow(run: Path, seed: int, steps: int = 300, width: int = 512, rate: float = 0.5) -> str:
    """S1 where theory applies: deviations 1, centred, plain gradient descent; predicted scores stand beside."""
    from tangentlens.record.instruments import kernel_prediction

    corpus = polar_words(seed=seed)
    model = TokenMLP(corpus.vocabulary, width, labels=2, seed=seed)
    looks, words = _looks(steps), list(range(1, corpus.vocabulary))
    documents = list(corpus.documents)
    times = rate * torch.tensor(looks, dtype=torch.float64)
    flow = kernel_flow(mlp_kernel(documents), corpus.labels, times, labels=2)
    moved = flow.scores(mlp_kernel([(word,) for word in words], documents), label_scores(model, words))
    measures = [*_of_kernels(corpus), *kernel_prediction(dict(zip(looks, moved)))]
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    return _followed(run, model, corpus, optimiser, steps, measures, centred=True, seed=seed)


def followed_negation(run: Path, kind: Callable[..., TextModel], seed: int, epochs: int = 300) -> str:
    """S4: the four groups over training, beside the sum of single scores."""
    from tangentlens.record import Recorder, every
    from tangentlens.record.instruments import negation

    corpus = negated_adjectives(seed=seed)
    model = kind(corpus.vocabulary, 24, labels=2, seed=seed)
    sides = (corpus.groups["positive"], corpus.groups["negative"])
    measures = [*_of_words(corpus), *negation(*sides, NOT, labels=LABELS)]
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    probe = (torch.stack(corpus.documents[:40]), corpus.labels[:40])
    with Recorder(
        run, model, probe, measures, schedule=every(1), seed=seed, title=f"negation, {kind.__name__}"
    ) as record:
        train_on_documents(
            model, corpus.documents, corpus.labels, step_of(model, optimiser), epochs, batch=None, seed=seed,
            looks=set(_looks(epochs)), look=record.observe,
        )  # fmt: skip
    return str(run)


def _followed(
    run: Path, model: TokenMLP, corpus: Corpus, optimiser: torch.optim.Optimizer, steps: int,
    measures: Sequence[Measure], *, centred: bool, seed: int,
) -> str:  # fmt: skip
    from tangentlens.record import Recorder, every

    counts = token_counts(list(corpus.documents), corpus.vocabulary).to_dense().float()
    probe = (torch.stack(corpus.documents[:40]), corpus.labels[:40])
    every_measure = [*_of_words(corpus), *measures]
    with Recorder(run, model, probe, every_measure, schedule=every(1), seed=seed, title=run.name) as record:
        train_on_counts(
            model,
            counts,
            corpus.labels,
            optimiser,
            steps,
            looks=set(_looks(steps)),
            look=record.observe,
            centred=centred,
        )
    return str(run)


def _looks(steps: int, points: int = 20) -> list[int]:
    """0, and log-spaced steps to the last."""
    spaced = torch.logspace(0, torch.tensor(float(steps)).log10().item(), points).round().int().tolist()
    return sorted({0, *spaced, steps})


def names(corpus: Corpus) -> dict[str, int]:
    """Made-up words by what they are: "positive 3"."""
    return {
        (group if len(numbers) == 1 else f"{group} {place}"): number
        for group, numbers in corpus.groups.items()
        for place, number in enumerate(numbers, 1)
    }


def _of_words(corpus: Corpus) -> list[Measure]:
    from tangentlens.record.instruments import tokens

    number = names(corpus)
    word = {place: name for name, place in number.items()}
    pairs = (
        ([word[n] for n in document.tolist()], label)
        for document, label in zip(corpus.documents, corpus.labels.tolist())
    )
    return tokens(list(number), number, labels=list(LABELS), counts=cooccurrence(pairs, labels=(0, 1)), rate=0.3)


def _of_kernels(corpus: Corpus) -> list[Measure]:
    from tangentlens.record.instruments import token_kernel

    return token_kernel(list(names(corpus).values()))
