"""How the study trains: full batches on counted words, and shuffled batches on padded documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tangentlens.studies.sun2023.models import padded

Look = Callable[[int], object]
Step = Callable[[Tensor, Tensor], object]
"""One step of training on (tokens, labels)."""


def loss(scores: Float[Tensor, "example label"], labels: Int[Tensor, "example"]) -> Float[Tensor, ""]:
    """Mean logistic loss of one score, mean cross-entropy of several."""
    if scores.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(scores[:, 0], labels.to(scores.dtype))
    return F.cross_entropy(scores, labels)


def train_on_counts(
    model: nn.Module,
    counts: Float[Tensor, "example token"],
    labels: Int[Tensor, "example"],
    optimiser: torch.optim.Optimizer,
    steps: int,
    *,
    looks: Collection[int] = (),
    look: Look | None = None,
    centred: bool = False,
) -> None:
    """Full-batch training of a model that adds up its words: document scores are counts times word scores.

    Exactly the model's own sum, with each word computed once instead of at every occurrence. `centred` trains f - f0.
    """
    words = torch.arange(counts.shape[1])[:, None]
    start = model(words).detach() if centred else torch.zeros(())
    for step in range(steps + 1):
        if look is not None and step in looks:
            look(step)
        if step == steps:
            break
        optimiser.zero_grad(set_to_none=True)
        loss(counts @ (model(words) - start), labels).backward()
        optimiser.step()


def step_of(model: nn.Module, optimiser: torch.optim.Optimizer) -> Step:
    """Gradient of the loss by autograd, then whatever the optimiser does with it."""

    def step(tokens: Int[Tensor, "example position"], labels: Int[Tensor, "example"]) -> None:
        optimiser.zero_grad(set_to_none=True)
        loss(model(tokens), labels).backward()
        optimiser.step()

    return step


def train_on_documents(
    model: nn.Module,
    documents: Sequence[Int[Tensor, "_position"]],
    labels: Int[Tensor, "example"],
    step: Step,
    epochs: int,
    *,
    batch: int | None = 64,
    seed: int = 0,
    looks: Collection[int] = (),
    look: Look | None = None,
) -> None:
    """Shuffled batches, or the whole corpus at once (`batch=None`); `look` is called after the epochs in `looks`."""
    random = torch.Generator().manual_seed(seed)
    table, lengths = padded(documents), torch.tensor([len(document) for document in documents])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # dropout
        for epoch in range(epochs + 1):
            if look is not None and epoch in looks:
                look(epoch)
            if epoch == epochs:
                break
            model.train()
            for rows in _batches(lengths, batch, random):
                step(table[rows, : int(lengths[rows].max())], labels[rows])
    model.eval()


def _batches(
    lengths: Int[Tensor, "example"], batch: int | None, random: torch.Generator
) -> Iterator[Int[Tensor, "_row"]]:
    """A shuffled pass in batches of similar length: padding costs as much as words, and is most of a random batch."""
    order = torch.randperm(len(lengths), generator=random)
    if batch is None:
        yield order
        return
    batches: list[Tensor] = []
    for part in order.split(16 * batch):
        batches += part[lengths[part].argsort(stable=True)].split(batch)
    for place in torch.randperm(len(batches), generator=random).tolist():
        yield batches[place]


def accuracy(model: nn.Module, documents: Sequence[Int[Tensor, "_position"]], labels: Int[Tensor, "example"]) -> float:
    """Share of documents on the right side, or with the right label on top."""
    was_training = model.training
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(documents), 512):
            scores = model(padded(documents[start : start + 512]))
            found = (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.argmax(1)
            right += int((found == labels[start : start + 512]).sum())
    model.train(was_training)
    return right / len(documents)
