"""Where theory holds: unit variances, centred outputs. Trained label scores beside kernel flow, by width."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlens.kernels import entk
from tangentlens.kernels.infinite_width import mlp_kernel, token_counts
from tangentlens.kernels.token_scores import label_scores
from tangentlens.measures.bias import sign_accuracy
from tangentlens.measures.cooccurrence import difference
from tangentlens.measures.drift import Drift, drift
from tangentlens.measures.flow_agreement import correlation, flow_agreement
from tangentlens.measures.kernel_flow import kernel_flow
from tangentlens.studies.sun2023.models import TokenMLP
from tangentlens.studies.sun2023.synthetic import Corpus, polar_words
from tangentlens.studies.sun2023.training import train_on_counts

RATE, STEPS, PROBE = 0.5, 500, 40


@dataclass(frozen=True)
class LazyRun:
    """Trained against predicted scores of all words at the end, and how far the kernel moved on the way there."""

    activation: str
    width: int
    seed: int
    correlation: float
    relative_error: float
    group_correlation: float
    uncentred_correlation: float
    counting_correlation: float
    empirical_correlation: float
    signs: float
    drift: Drift
    trained: Tensor
    predicted: Tensor


def lazy_run(activation: str, width: int, seed: int, *, steps: int = STEPS) -> LazyRun:
    """S1 words at prior .8, all deviations 1, plain gradient descent; time is rate times steps."""
    corpus = polar_words(prior=0.8, seed=seed)
    words = list(range(1, corpus.vocabulary))
    predicted = _predicted(corpus, activation, words, RATE * steps)
    trained, model, before = _trained(corpus, activation, width, seed, steps, centred=True)
    uncentred, _, _ = _trained(corpus, activation, width, seed, steps, centred=False)
    probe = torch.stack(corpus.documents[:PROBE])
    positive, negative = (torch.tensor(corpus.groups[side]) - 1 for side in ("positive", "negative"))
    right = sign_accuracy(trained[positive], trained[negative])
    moved = drift(entk(model, probe), entk(before, probe))
    seen = flow_agreement(predicted, trained, moved, groups=_groups(corpus))
    return LazyRun(
        activation,
        width,
        seed,
        seen.correlation,
        seen.relative_error,
        seen.of_groups,
        correlation(uncentred, predicted),
        correlation(trained, difference(corpus.counts()[1:])),
        correlation(trained, _predicted_by_network(corpus, before, RATE * steps)),
        float(sum(right) / 2),
        moved,
        trained,
        predicted,
    )


def _groups(corpus: Corpus) -> Tensor:
    """The number of its group for each word, from word 1 on."""
    number = torch.zeros(corpus.vocabulary, dtype=torch.long)
    for place, words in enumerate(corpus.groups.values()):
        number[list(words)] = place
    return number[1:]


def _predicted(corpus: Corpus, activation: str, words: list[int], time: float) -> Tensor:
    documents = list(corpus.documents)
    flow = kernel_flow(mlp_kernel(documents, activation=activation), corpus.labels, torch.tensor([time]))
    singles = mlp_kernel([(word,) for word in words], documents, activation=activation)
    return flow.scores(singles)[0, :, 0]


def _predicted_by_network(corpus: Corpus, before: TokenMLP, time: float) -> Tensor:
    """Flow under the initial network's own kernel; a text is the sum of its words, so theirs is all it takes."""
    between = entk(before, torch.arange(corpus.vocabulary)[:, None]).double()
    counts = token_counts(list(corpus.documents), corpus.vocabulary).to_dense()
    flow = kernel_flow(counts @ between @ counts.T, corpus.labels, torch.tensor([time]))
    return flow.scores(between[1:] @ counts.T)[0, :, 0]


def _trained(
    corpus: Corpus, activation: str, width: int, seed: int, steps: int, *, centred: bool
) -> tuple[Tensor, TokenMLP, TokenMLP]:
    model = TokenMLP(corpus.vocabulary, width, activation=activation, seed=seed)
    before = TokenMLP(corpus.vocabulary, width, activation=activation, seed=seed)
    counts = token_counts(list(corpus.documents), corpus.vocabulary).to_dense().float()
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    train_on_counts(model, counts, corpus.labels, optimiser, steps, centred=centred)
    words = list(range(1, corpus.vocabulary))
    return label_scores(model, words, initial=before)[:, 0], model, before
