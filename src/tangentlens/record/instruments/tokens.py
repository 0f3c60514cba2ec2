"""What a text model makes of single words along the run: scores, how they follow co-occurrence, and their bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels.token_scores import Encode, label_scores
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
    bias; `polarity` are the thresholds of `polarity_lists`.
    """

    def scores(snapshot: Snapshot) -> Float[Tensor, "token label"]:
        return snapshot.reading(_scores, tuple(words), _Held(encode))

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


def _label_scores(scores: Any, coords: Mapping[str, Any]) -> Measure:
    attrs = {"long_name": "score of the word for the label", "units": "", "question": "What does each word decide?"}
    return Measure("tokens/label_scores", ("token", "label"), scores, coords, attrs)


def _of_two_labels(scores: Any, positive: Tensor, negative: Tensor) -> list[Measure]:
    def lean(snapshot: Snapshot, rows: Tensor) -> Tensor:
        found = scores(snapshot)[rows]
        return found[:, -1] - (found[:, 0] if found.shape[1] > 1 else 0)

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

    def __init__(self, encode: Encode) -> None:
        self.encode = encode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.encode is other.encode

    def __hash__(self) -> int:
        return id(self.encode)


def _scores(snapshot: Snapshot, words: tuple[str, ...], held: _Held) -> Tensor:
    found = label_scores(snapshot.model, list(words), encode=held.encode, outputs=snapshot.select).detach().cpu()
    return found - found.mean(1, keepdim=True) if found.shape[1] > 1 else found


def _rank_correlations(scores: Float[Tensor, "token label"], counts: Float[Tensor, "token label"]) -> Tensor:
    """Spearman's, per label, of scores and counts less their means over labels: a word met everywhere decides nothing.

    A model with one output is compared with the difference of its two labels.
    """
    one_output = scores.shape[1] == 1 and counts.shape[1] == 2
    counts = counts[:, 1:] - counts[:, :1] if one_output else counts - counts.mean(1, keepdim=True)
    ranks = [_ranks(table.double()) for table in (scores, counts)]
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
