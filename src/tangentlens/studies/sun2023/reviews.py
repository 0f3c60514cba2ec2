"""The released recipe on real text: d = 64, deviations .1, Adagrad at 1e-3, batches of 64, dropout .2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tangentlens.kernels import entk
from tangentlens.kernels.infinite_width import Deviations, MLPKernelProduct
from tangentlens.kernels.token_scores import label_scores
from tangentlens.measures.bias import asymmetry_index, one_signed, sign_accuracy
from tangentlens.measures.cooccurrence import shares
from tangentlens.measures.drift import Drift, drift
from tangentlens.measures.kernel_flow import kernel_flow
from tangentlens.studies.sun2023.models import SelfAttention, TextModel, TokenCNN, TokenMLP, padded
from tangentlens.studies.sun2023.row_adagrad import RowAdagrad
from tangentlens.studies.sun2023.text import Task
from tangentlens.studies.sun2023.training import accuracy, train_on_documents

WIDTH, RATE, DROPOUT, PROBE = 64, 1e-3, 0.2, 60


@dataclass(frozen=True)
class Recipe:
    """An architecture, its activation and the deviation of its readout."""

    kind: Callable[..., TextModel] = TokenMLP
    activation: str = "relu"
    readout: float = 0.1

    def network(self, task: Task, seed: int) -> TextModel:
        return self.kind(
            len(task.words), WIDTH, labels=1 if len(task.classes) == 2 else len(task.classes), dropout=DROPOUT,
            activation=self.activation, deviations=Deviations(0.1, 0.1, self.readout), seed=seed,
        )  # fmt: skip


RECIPES = {
    "ReLU s_v=.1": Recipe(),
    "ReLU s_v=.01": Recipe(readout=0.01),
    "GeLU s_v=.1": Recipe(activation="gelu"),
    "GeLU s_v=.01": Recipe(activation="gelu", readout=0.01),
    "SA": Recipe(SelfAttention),
    "CNN": Recipe(TokenCNN),
}


@dataclass(frozen=True)
class Looks:
    """Readings by epoch."""

    positive: dict[int, Tensor] = field(default_factory=dict)
    negative: dict[int, Tensor] = field(default_factory=dict)
    neutral: dict[int, Tensor] = field(default_factory=dict)
    spearman: dict[int, float] = field(default_factory=dict)
    train: dict[int, float] = field(default_factory=dict)
    test: dict[int, float] = field(default_factory=dict)
    one_signed: dict[int, float] = field(default_factory=dict)
    drift: dict[int, Drift] = field(default_factory=dict)

    def signs(self, epoch: int) -> float:
        """Share of polar words with the right sign, both sides weighing the same."""
        right = sign_accuracy(self.positive[epoch], self.negative[epoch])
        return float(sum(right) / 2)

    def asymmetry(self, epoch: int) -> float:
        return float(asymmetry_index(self.positive[epoch], self.negative[epoch]))


def released(task: Task, recipe: Recipe, seed: int, epochs: int, looks: Sequence[int]) -> Looks:
    """Train on two classes and read all word scores after the epochs in `looks`."""
    model = recipe.network(task, seed)
    model.eval()
    lists = task.polarity()
    frequent = torch.tensor([n for n, row in zip(task.counts.tokens, task.counts.counts) if row.sum() > 5])
    rate = shares(task.counts.of(frequent.tolist()))[:, 1]
    probe = padded([document for document in task.documents[:200] if len(document) <= 12][:PROBE])
    first = entk(model, probe)
    seen = Looks()

    def look(epoch: int) -> None:
        model.eval()
        scores = label_scores(model, list(range(1, len(task.words))), chunk=4096)[:, 0]
        seen.positive[epoch] = scores[lists.positive - 1]
        seen.negative[epoch] = scores[lists.negative - 1]
        seen.neutral[epoch] = scores[lists.neutral - 1]
        seen.spearman[epoch] = rank_correlation(scores[frequent - 1], rate)
        seen.train[epoch] = accuracy(model, task.documents, task.labels)
        seen.test[epoch] = accuracy(model, task.test_documents, task.test_labels)
        seen.one_signed[epoch] = float(one_signed(model.readout.detach()[0]))
        seen.drift[epoch] = drift(entk(model, probe), first)

    step = RowAdagrad(model, RATE)
    train_on_documents(model, task.documents, task.labels, step, epochs, seed=seed, looks=set(looks), look=look)
    return seen


def topics(task: Task, seed: int, epochs: int) -> tuple[list[float], list[float], float]:
    """Several classes: per class the rank correlation of scores with shares, its shuffled null, and test accuracy."""
    model = RECIPES["ReLU s_v=.1"].network(task, seed)
    train_on_documents(model, task.documents, task.labels, RowAdagrad(model, RATE), epochs, seed=seed)
    frequent = [n for n, row in zip(task.counts.tokens, task.counts.counts) if row.sum() > 5]
    scores = label_scores(model, frequent, chunk=4096)  # type: ignore[arg-type]
    scores = scores - scores.mean(1, keepdim=True)
    share = shares(task.counts.of(frequent))
    order = torch.randperm(len(frequent), generator=torch.Generator().manual_seed(seed))
    per_class = range(len(task.classes))
    return (
        [rank_correlation(scores[:, k], share[:, k]) for k in per_class],
        [rank_correlation(scores[order, k], share[:, k]) for k in per_class],
        accuracy(model, task.test_documents, task.test_labels),
    )


def rank_correlation(left: Tensor, right: Tensor) -> float:
    """Spearman's, ties sharing their mean rank."""
    from scipy.stats import spearmanr

    return float(spearmanr(left.numpy(), right.numpy()).statistic)


def flow_on_reviews(task: Task, taus: Sequence[float]) -> dict[str, Tensor]:
    """Exact flow of the infinitely wide ReLU MLP: scores (time, word) of positive, negative and neutral words.

    Time is in units of 1/rho, deviations all equal, so the bias has mu/rho = .119.
    """
    documents = list(task.documents)
    product = MLPKernelProduct.of(documents)
    times = torch.tensor(list(taus)) / product.coefficients.matching
    flow = kernel_flow(product, task.labels, times)
    lists = task.polarity()
    sides = {"positive": lists.positive, "negative": lists.negative, "neutral": lists.neutral}
    return {
        name: flow.scores(MLPKernelProduct.of([(word,) for word in words.tolist()], documents))[..., 0]
        for name, words in sides.items()
    }
