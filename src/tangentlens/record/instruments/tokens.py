"""What a text model makes of single words along the run: scores, how they follow co-occurrence, and their bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.errors import BadInput
from tangentlens.kernels.token_scores import Encode, Phrase, label_scores
from tangentlens.measures.bias import asymmetry_index
from tangentlens.measures.cooccurrence import Cooccurrence, polarity_lists
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot


def tokens(
    words: Sequence[str],
    encode: Encode,
    *,
    labels: Sequence[str] | None = None,
    counts: Cooccurrence | None = None,
    **polarity: float,
) -> list[Measure]:
    """Measures of the group `tokens`: the score each word gives each label, read through the model's own forward.

    With `counts` (of the training corpus) also how scores follow co-occurrence and, for two labels, sign accuracy and
    bias; `polarity` are the thresholds of `polarity_lists`. The one logit of a model of two classes is shared out
    between its labels, minus half and plus half.
    """
    if not words:
        raise BadInput("expected at least one word to score, got none")
    if labels is not None and counts is not None and len(labels) != len(counts.labels):
        raise BadInput(f"labels= names {list(labels)}, the corpus was counted by {list(counts.labels)}; name the same")
    known = labels if labels is not None else None if counts is None else counts.labels

    def scores(snapshot: Snapshot) -> Float[Tensor, "token label"]:
        return word_scores(snapshot, tuple(words), encode, known)

    coords: dict[str, Any] = {"token": list(words)}
    if labels is not None:
        coords["label"] = list(labels)
    if counts is None:
        return [_label_scores(scores, coords)]
    table = counts.of(list(words))
    coords["cooccurrence"] = (("token", "label"), table.numpy())
    coords["count"] = (("token",), table.sum(1).numpy())
    measures = [
        Measure(
            "tokens/score_correlation",
            ("label",),
            lambda s: _rank_correlations(scores(s), table),
            attrs={"long_name": "rank correlation of scores with co-occurrence", "units": "", "bounds": [-1.0, 1.0]},
        )
    ]
    if table.shape[1] == 2:
        lists = polarity_lists(table, **polarity)
        sides = torch.zeros(len(words))
        sides[lists.positive], sides[lists.negative] = 1.0, -1.0
        coords["polarity"] = (("token",), sides.numpy())
        measures += _of_two_labels(scores, lists.positive, lists.negative)
    return [_label_scores(scores, coords), *measures]


def word_scores(
    snapshot: Snapshot, phrases: tuple[Phrase, ...], encode: Encode | None, labels: Sequence[Any] | None
) -> Float[Tensor, "phrase label"]:
    """Scores less their mean over labels, read once a step whoever asks; `labels` are checked against the outputs."""
    found: Tensor = snapshot.reading(_scores, phrases, _Held(encode))
    return found if labels is None else _one_per_label(found, labels)


def _label_scores(scores: Any, coords: Mapping[str, Any]) -> Measure:
    attrs = {"long_name": "score of the word for the label", "units": "", "question": "What does each word decide?"}
    return Measure("tokens/label_scores", ("token", "label"), scores, coords, attrs)


def _of_two_labels(scores: Any, positive: Tensor, negative: Tensor) -> list[Measure]:
    def lean(snapshot: Snapshot, rows: Tensor) -> Tensor:
        found = scores(snapshot)[rows]
        return found[:, 1] - found[:, 0]

    def right(snapshot: Snapshot) -> Tensor:
        return torch.cat([lean(snapshot, positive) > 0, lean(snapshot, negative) < 0]).double().mean()

    sign = {"long_name": "polar words with the right sign", "bounds": [0.0, 1.0], "chance": "sign_accuracy_chance"}
    push = {"long_name": "push that all words share", "bounds": [-1.0, 1.0],
            "question": "Does every word lean to one label, whatever it means?"}  # fmt: skip
    return [
        Measure("tokens/sign_accuracy", (), right, attrs=sign),
        Measure("tokens/sign_accuracy_chance", (), lambda s: 0.5, attrs={"long_name": "signs at random"}),
        Measure("tokens/asymmetry", (), lambda s: asymmetry_index(lean(s, positive), lean(s, negative)), attrs=push),
    ]


class _Held:
    """An encoding as part of a reading's key: by identity, for a mapping has no hash."""

    def __init__(self, encode: Encode | None) -> None:
        self.encode = encode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.encode is other.encode

    def __hash__(self) -> int:
        return id(self.encode)


def _scores(snapshot: Snapshot, phrases: tuple[Phrase, ...], held: _Held) -> Tensor:
    found = label_scores(snapshot.model, list(phrases), encode=held.encode, outputs=snapshot.select).detach().cpu()
    return found - found.mean(1, keepdim=True) if found.shape[1] > 1 else found


def _one_per_label(scores: Float[Tensor, "token output"], labels: Sequence[Any]) -> Float[Tensor, "token label"]:
    outputs = scores.shape[1]
    if outputs == 1 and len(labels) == 2:
        return torch.cat([-scores / 2, scores / 2], 1)  # softmax of these is the sigmoid of the logit
    if outputs != len(labels):
        raise BadInput(
            f"the model has {outputs} output{'s' * (outputs > 1)} and there are {len(labels)} labels, {list(labels)}; "
            "name one label per output, or choose the outputs"
        )
    return scores


def _rank_correlations(scores: Float[Tensor, "token label"], counts: Float[Tensor, "token label"]) -> Tensor:
    """Spearman's, per label; both less their means over labels, for a word met everywhere decides nothing."""
    ranks = [_ranks(table.double()) for table in (scores, counts - counts.mean(1, keepdim=True))]
    left, right = (table - table.mean(0) for table in ranks)
    return (left * right).sum(0) / (left.norm(dim=0) * right.norm(dim=0))


def _ranks(table: Float[Tensor, "token label"]) -> Float[Tensor, "token label"]:
    """Ranks from 1, ties sharing their mean rank."""
    columns = []
    for column in table.T:
        _, place, times = torch.unique(column, return_inverse=True, return_counts=True)
        last = times.cumsum(0).double()
        columns.append((last - (times.double() - 1) / 2)[place])
    return torch.stack(columns, dim=1)
