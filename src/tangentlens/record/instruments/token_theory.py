"""What theory says of words along the run: the bias of the kernel, kernel flow beside training, and negation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.errors import BadInput
from tangentlens.kernels import entk
from tangentlens.kernels.token_scores import Encode, Phrase, encoded_phrase
from tangentlens.measures.bias import bias_ratio
from tangentlens.measures.drift import ALIGNMENT_LIMIT, CHANGE_LIMIT, Drift, drift
from tangentlens.measures.negation import NegationGrid, negation_grid
from tangentlens.record.instruments.tokens import word_scores
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

GROUPS = ("adj+", "not adj+", "adj-", "not adj-")


def token_kernel(
    words: Sequence[str] | Sequence[int], encode: Encode | None = None, *, theory: float | None = None
) -> list[Measure]:
    """The push all words share, read from the kernel between different single words, and how far the probe's moved.

    Words must differ: two inputs without a common word show the bias. `theory` is the ratio foreseen, such as
    `mlp_coefficients(...).bias_ratio`, and is recorded beside. A constant kernel explains training while both
    `kernel_drift` and `kernel_change` stay within the limits of `measures.drift`, which are kept as their attributes.
    """
    rows = [encoded_phrase(word, encode) for word in words]
    if len(rows) < 2 or len(set(words)) < len(rows):
        raise BadInput(f"a bias shows between different words: expected at least two, none twice, got {list(words)!r}")
    if not all(isinstance(row, Tensor) and row.shape == (1, 1) for row in rows):
        raise BadInput("every word must be one token alone; pass token numbers or a word -> number mapping")
    singles = torch.cat([row for row in rows if isinstance(row, Tensor)])
    apart = ~torch.eye(len(singles), dtype=torch.bool)

    def between_words(snapshot: Snapshot) -> Float[Tensor, ""]:
        device = next((p.device for p in snapshot.model.parameters()), torch.device("cpu"))
        kernel = entk(snapshot.model, singles.to(device), outputs=snapshot.select).detach()
        return bias_ratio(kernel.double().cpu(), apart)

    ratio = {"long_name": "kernel between different words over its diagonal", "units": ""}
    turned = {"long_name": "1 - cosine of the kernel with the initial one", "units": "", "limit": 1 - ALIGNMENT_LIMIT}
    changed = {"long_name": "change of the kernel over its initial size", "units": "", "limit": CHANGE_LIMIT}
    needs = frozenset({"initial"})
    measures = [
        Measure("tokens/bias_ratio", (), between_words, attrs=ratio),
        Measure("tokens/kernel_drift", (), lambda s: 1 - _moved(s).alignment, attrs=turned, needs=needs),
        Measure("tokens/kernel_change", (), lambda s: _moved(s).change, attrs=changed, needs=needs),
    ]
    if theory is None:
        return measures
    measures[0] = Measure("tokens/bias_ratio", (), between_words, attrs={**ratio, "theory": "bias_ratio_theory"})
    foreseen = {"long_name": "the same at infinite width", "units": ""}
    return [*measures, Measure("tokens/bias_ratio_theory", (), lambda s: theory, attrs=foreseen)]


def _moved(snapshot: Snapshot) -> Drift:
    return drift(snapshot.entk(), snapshot.beginning.entk())


def kernel_prediction(predicted: Mapping[int, Float[Tensor, "token label"]]) -> list[Measure]:
    """Scores foreseen by `kernel_flow` at the steps recorded, beside the trained ones of `tokens` (same words, labels).

    Less their mean over labels, as the trained ones are.
    """

    def foreseen(snapshot: Snapshot) -> Float[Tensor, "token label"]:
        if snapshot.step not in predicted:
            raise BadInput(f"no scores were foreseen for step {snapshot.step}, only for {sorted(predicted)[:5]} ...")
        scores = predicted[snapshot.step]
        return scores - scores.mean(-1, keepdim=True) if scores.shape[-1] > 1 else scores

    attrs = {"long_name": "score by kernel flow", "units": ""}
    return [Measure("tokens/predicted_scores", ("token", "label"), foreseen, attrs=attrs)]


def negation(
    positive: Sequence[str] | Sequence[int],
    negative: Sequence[str] | Sequence[int],
    negator: str | int,
    encode: Encode | None = None,
    *,
    labels: Sequence[str] | None = None,
) -> list[Measure]:
    """Mean scores of four groups of phrases, adjectives of either side alone and negated, and the sums of their words.

    Without understanding, "not good" can look right because "not" leans negative: the sums stand beside as the null.
    """
    sides: list[list[str | int]] = [list(positive), list(negative)]
    if not all(sides):
        raise BadInput(f"expected adjectives on both sides, got {len(sides[0])} positive and {len(sides[1])} negative")
    negated = [[_together(negator, word) for word in words] for words in sides]
    phrases: tuple[Phrase, ...] = (*sides[0], *negated[0], *sides[1], *negated[1], negator)
    sizes = [len(words) for words in sides for _ in range(2)]

    def groups(snapshot: Snapshot) -> list[NegationGrid]:
        found = []
        for column in word_scores(snapshot, phrases, encode, labels).T:
            good, not_good, bad, not_bad, alone = column.split([*sizes, 1])
            found.append(negation_grid(good, not_good, bad, not_bad, float(alone)))
        return found

    coords: dict[str, Any] = {"group": list(GROUPS)}
    if labels is not None:
        coords["label"] = list(labels)
    added = {"long_name": "mean of the single scores added", "units": ""}
    return [
        Measure(
            "tokens/negation", ("group", "label"), lambda s: torch.stack([g.score for g in groups(s)], 1),
            coords, {"long_name": "mean score", "units": "", "null": "negation_additive"},
        ),
        Measure(
            "tokens/negation_additive", ("group", "label"),
            lambda s: torch.stack([g.additive_score for g in groups(s)], 1), coords, added,
        ),
    ]  # fmt: skip


def _together(negator: str | int, word: str | int) -> str | tuple[int, int]:
    if isinstance(negator, int) and isinstance(word, int):
        return negator, word
    return f"{negator} {word}"
