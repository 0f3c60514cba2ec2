"""S3 and S4: who can represent word order, XOR and negation, in the kernel limit and in trained networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlens.kernels.infinite_width import (
    Deviations,
    attention_kernel,
    cnn_kernel,
    linear_recurrence_kernel,
    matrix_vector_kernel,
    mlp_kernel,
    with_begin,
)
from tangentlens.kernels.token_scores import label_scores
from tangentlens.measures.kernel_flow import kernel_flow, kernel_time
from tangentlens.measures.negation import NegationGrid, negation_grid
from tangentlens.studies.sun2023 import models
from tangentlens.studies.sun2023.models import TextModel
from tangentlens.studies.sun2023.synthetic import NOT, Corpus, adjacent_xor, negated_adjectives, word_order
from tangentlens.studies.sun2023.training import accuracy, step_of, train_on_documents

SMALL = Deviations(0.1, 0.1, 0.1)
TIMES = (20.0, 10_000.0)
"""In units of kernel_time: when most documents are fitted, and when all that can be are."""
TASKS = {"order": word_order, "XOR": adjacent_xor, "negation": negated_adjectives}

Kernel = Callable[[Sequence[Tensor], Sequence[Tensor] | None], Tensor]
KERNELS: dict[str, Kernel] = {
    "MLP ReLU": lambda d, o: mlp_kernel(d, o, deviations=SMALL),
    "SA": lambda d, o: attention_kernel(d, o, deviations=SMALL),
    "linear CNN": lambda d, o: cnn_kernel(d, o, padding=0, activation="identity", deviations=SMALL),
    # behind a blank on either side every word fills both slots of its windows: no edge tells a slot from the other
    "linear CNN, padded": lambda d, o: cnn_kernel(d, o, padding=1, activation="identity", deviations=SMALL),
    "ReLU CNN": lambda d, o: cnn_kernel(d, o, padding=0, deviations=SMALL),
    "MV": lambda d, o: matrix_vector_kernel(d, o, deviations=SMALL),
    "L-RNN": lambda d, o: linear_recurrence_kernel(d, o, deviations=SMALL),
}


@dataclass(frozen=True)
class OrderRun:
    """Test accuracy at each time, and for negation the four groups at each."""

    accuracy: tuple[float, ...]
    grids: tuple[NegationGrid, ...] = ()


def pairs(task: str, seed: int, **sizes: int) -> tuple[Corpus, Corpus]:
    """Training and test documents from the same source."""
    return TASKS[task](seed=seed, **sizes), TASKS[task](seed=1000 + seed, **sizes)


def by_kernel(task: str, kernel: str, seed: int, *, mark: bool = True, **sizes: int) -> OrderRun:
    """Exact gradient flow of the infinitely wide network; `sizes` are those of the corpus.

    Texts stand behind a begin mark, a word of its own: windows without padding and bigrams need one before a text that
    may be a single word.
    """
    train, test = pairs(task, seed, **sizes)

    def marked(documents: Sequence[Tensor]) -> list[Tensor]:
        return with_begin(documents, train.vocabulary) if mark else list(documents)

    function, documents = KERNELS[kernel], marked(train.documents)
    table = function(documents, None)
    flow = kernel_flow(table, train.labels, torch.tensor(TIMES) * kernel_time(table))
    scores = flow.scores(function(marked(test.documents), documents))[..., 0]
    right = ((scores > 0) == test.labels.bool()).double().mean(1)
    grids: tuple[NegationGrid, ...] = ()
    if task == "negation":
        probe = flow.scores(function(marked(_probe(train)), documents))[..., 0]
        grids = tuple(_grid(row, train) for row in probe)
    return OrderRun(tuple(right.tolist()), grids)


NETWORKS: dict[str, Callable[[int, int], TextModel]] = {
    "MLP ReLU": lambda size, seed: models.TokenMLP(size, 64, seed=seed),
    "SA": lambda size, seed: models.SelfAttention(size, 64, seed=seed),
    "SA+MLP ReLU": lambda size, seed: models.SelfAttentionMLP(size, 64, seed=seed),
    "linear CNN": lambda size, seed: models.TokenCNN(size, 64, window=2, activation="identity", seed=seed),
    "ReLU CNN": lambda size, seed: models.TokenCNN(size, 64, window=2, seed=seed),
    # one matrix per word: at width 64 it costs ten times what all the others do
    "MV": lambda size, seed: models.MatrixVector(size, 24, seed=seed),
    "MV diagonal": lambda size, seed: models.DiagonalMatrixVector(size, 64, seed=seed),
    "L-RNN": lambda size, seed: models.LinearRecurrence(size, 64, seed=seed),
    "gated L-RNN": lambda size, seed: models.GatedRecurrence(size, 64, seed=seed),
}


def by_network(task: str, network: str, seed: int, *, epochs: int = 300, rate: float = 3e-3) -> OrderRun:
    """A network of width 64 (MV: 24) trained by Adam on the same documents, the whole corpus at once."""
    train, test = pairs(task, seed)
    model = NETWORKS[network](train.vocabulary, seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    train_on_documents(model, train.documents, train.labels, step_of(model, optimiser), epochs, batch=None, seed=seed)
    grids: tuple[NegationGrid, ...] = ()
    if task == "negation":
        scores = label_scores(model, [row.tolist() for row in _probe(train)])[:, 0]
        grids = (_grid(scores, train),)
    return OrderRun((accuracy(model, test.documents, test.labels),), grids)


def _probe(corpus: Corpus) -> list[Tensor]:
    """Each adjective alone, each after "not", and "not" alone."""
    words = [*corpus.groups["positive"], *corpus.groups["negative"]]
    return [torch.tensor(row) for row in [[w] for w in words] + [[NOT, w] for w in words] + [[NOT]]]


def _grid(scores: Tensor, corpus: Corpus) -> NegationGrid:
    positive, negative = len(corpus.groups["positive"]), len(corpus.groups["negative"])
    good, bad, not_good, not_bad, alone = scores.split([positive, negative, positive, negative, 1])
    return negation_grid(good, not_good, bad, not_bad, float(alone))
