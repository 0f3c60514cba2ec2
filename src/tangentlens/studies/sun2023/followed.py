"""Short trainings kept as runs, for the report: word scores, bias, negation, and flow beside training, over steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tangentlens.kernels import entk
from tangentlens.kernels.infinite_width import Deviations, mlp_kernel, token_counts
from tangentlens.kernels.token_scores import label_scores
from tangentlens.measures.bias import bias_ratio, disjoint
from tangentlens.measures.cooccurrence import cooccurrence
from tangentlens.measures.drift import drift
from tangentlens.measures.kernel_flow import kernel_flow
from tangentlens.measures.negation import negation_grid
from tangentlens.studies.sun2023.imbalance import RATE, SETTINGS
from tangentlens.studies.sun2023.models import MatrixVector, TextModel, TokenCNN, TokenMLP
from tangentlens.studies.sun2023.synthetic import NOT, Corpus, negated_adjectives, polar_words
from tangentlens.studies.sun2023.training import train_on_counts, train_on_documents

if TYPE_CHECKING:
    from tangentlens.record import Measure, Snapshot

LABELS = ("negative", "positive")
GROUPS = ("adj+", "not adj+", "adj-", "not adj-")


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
    return _followed(run, model, corpus, optimiser, steps, _of_kernels(corpus), centred=False)


def followed_flow(run: Path, seed: int, steps: int = 300, width: int = 512, rate: float = 0.5) -> str:
    """S1 where theory applies: deviations 1, centred, plain gradient descent; predicted scores stand beside."""
    corpus = polar_words(seed=seed)
    model = TokenMLP(corpus.vocabulary, width, labels=2, seed=seed)
    looks, words = _looks(steps), list(range(1, corpus.vocabulary))
    documents = list(corpus.documents)
    times = rate * torch.tensor(looks, dtype=torch.float64)
    flow = kernel_flow(mlp_kernel(documents), corpus.labels, times, labels=2)
    moved = flow.scores(mlp_kernel([(word,) for word in words], documents), label_scores(model, words))
    predicted = dict(zip(looks, moved - moved.mean(-1, keepdim=True)))

    foreseen = _variable("predicted_scores", ("token", "label"), lambda s: predicted[s.step], "score by kernel flow")
    measures = [*_of_kernels(corpus), foreseen]
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    return _followed(run, model, corpus, optimiser, steps, measures, centred=True)


def followed_negation(run: Path, kind: Callable[..., TextModel], seed: int, epochs: int = 300) -> str:
    """S4: the four groups over training, beside the sum of single scores."""
    from tangentlens.record import Recorder, every

    corpus = negated_adjectives(seed=seed)
    model = kind(corpus.vocabulary, 24, labels=2, seed=seed)

    def grid(snapshot: Snapshot) -> tuple[Tensor, Tensor]:
        return snapshot.reading(_negation, corpus)

    measures = [
        *_of_words(corpus),
        _variable("negation", ("group", "label"), lambda s: grid(s)[0], "mean score", {"group": list(GROUPS)},
                  null="negation_additive"),
        _variable("negation_additive", ("group", "label"), lambda s: grid(s)[1], "mean of the single scores added"),
    ]  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    probe = (torch.stack(corpus.documents[:40]), corpus.labels[:40])
    with Recorder(
        run, model, probe, measures, schedule=every(1), seed=seed, title=f"negation, {kind.__name__}"
    ) as record:
        train_on_documents(
            model, corpus.documents, corpus.labels, optimiser, epochs, batch=None, seed=seed,
            looks=set(_looks(epochs)), look=record.observe,
        )  # fmt: skip
    return str(run)


def _followed(
    run: Path, model: TokenMLP, corpus: Corpus, optimiser: torch.optim.Optimizer, steps: int,
    measures: Sequence[Measure], *, centred: bool,
) -> str:  # fmt: skip
    from tangentlens.record import Recorder, every

    counts = token_counts(list(corpus.documents), corpus.vocabulary).to_dense().float()
    probe = (torch.stack(corpus.documents[:40]), corpus.labels[:40])
    with Recorder(run, model, probe, [*_of_words(corpus), *measures], schedule=every(1), title=run.name) as record:
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
    singles = torch.tensor([[number] for number in names(corpus).values()])
    apart = disjoint(token_counts(singles, corpus.vocabulary).to_dense())

    def of_single_words(snapshot: Snapshot) -> Tensor:
        return bias_ratio(entk(snapshot.model, singles).double(), apart)

    return [
        _variable("bias_ratio", (), of_single_words, "kernel between different words over its diagonal"),
        _variable("kernel_drift", (), lambda s: 1 - drift(s.entk(), s.beginning.entk()).alignment,
                  "1 - cosine of the kernel with the initial one", needs=frozenset({"initial"})),
    ]  # fmt: skip


def _negation(snapshot: Snapshot, corpus: Corpus) -> tuple[Tensor, Tensor]:
    """(group, label) mean scores seen, and added up; scores are centred over labels, as recorded ones are."""
    sides = [list(corpus.groups[side]) for side in ("positive", "negative")]
    phrases = [row for words in sides for row in ([[w] for w in words] + [[NOT, w] for w in words])] + [[NOT]]
    scores = label_scores(snapshot.model, phrases)
    scores = scores - scores.mean(1, keepdim=True)
    count = len(sides[0])
    grids = [negation_grid(*column[:-1].split(count), negator=float(column[-1])) for column in scores.T]  # type: ignore[misc]
    return torch.stack([g.score for g in grids], 1), torch.stack([g.additive_score for g in grids], 1)


def _variable(
    name: str, dims: tuple[str, ...], compute: Callable[[Snapshot], object], long_name: str,
    coords: dict[str, list[str]] | None = None, needs: frozenset[str] = frozenset(), **attrs: str,
) -> Measure:  # fmt: skip
    from tangentlens.record import Measure

    return Measure(f"tokens/{name}", dims, compute, coords or {}, {"long_name": long_name, "units": "", **attrs}, needs)
