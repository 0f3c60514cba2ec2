"""What a text model makes of single words along the run: scores, how they follow co-occurrence, and their bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.errors import BadInput
from tangentlens.kernels.token_scores import Encode, Phrase, label_scores
from tangentlens.measures.bias import asymmetry_index, sign_accuracy
from tangentlens.measures.cooccurrence import Cooccurrence, pmi, polarity_lists, shares
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

Statistic = Literal["count", "rate", "pmi"]
STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "count": lambda counts: counts - counts.mean(1, keepdim=True),  # a word met everywhere decides nothing
    "rate": shares,
    "pmi": lambda counts: pmi(counts, smoothing=0.5),
}


def tokens(
    words: Sequence[Phrase],
    encode: Encode | None = None,
    *,
    labels: Sequence[str] | None = None,
    counts: Cooccurrence | None = None,
    statistic: Statistic = "count",
    minus_initial: bool = False,
    **polarity: float,
) -> list[Measure]:
    """Measures of the group `tokens`: the score each word gives each label, read through the model's own forward.

    A word may be an n-gram, a string or a tuple of words; the record names it by its words in a row. `labels` are the
    model's outputs in their order; labels that are numbers are numbers of outputs. `minus_initial` takes the scores
    before training off. With `counts` (of the training corpus) also how scores follow co-occurrence and, for two
    labels, sign accuracy (both sides weighing the same) and bias: `statistic` is what scores are ranked against,
    counts less their mean over labels, which early training follows, or each word's rates, or PMI; `polarity` are the
    thresholds of `polarity_lists`. The one logit of a model of two classes is shared out between its labels, minus half
    and plus half.
    """
    if isinstance(words, str) or not len(words):
        raise BadInput(f"expected a list of at least one word to score, got {words!r}")
    names = [_name(word) for word in words]
    if len(set(names)) < len(names):
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        raise BadInput(f"each word once, got {twice[:5]} more than once; leave the second out")
    columns = None if counts is None else _columns(labels, counts.labels)
    known = labels if labels is not None else None if counts is None else counts.labels

    def scores(snapshot: Snapshot) -> Float[Tensor, "token label"]:
        found = word_scores(snapshot, words, encode, known)
        return found - word_scores(snapshot.beginning, words, encode, known) if minus_initial else found

    coords: dict[str, Any] = {"token": names}
    if labels is not None:
        coords["label"] = list(labels)
    needs = frozenset({"initial"}) if minus_initial else frozenset()
    if counts is None:
        return _needing(needs, [_label_scores(scores, coords)])
    table = counts.of(list(words))[:, columns]
    if statistic not in STATISTICS:
        raise BadInput(f"statistic is one of {', '.join(STATISTICS)}, got {statistic!r}")
    company = STATISTICS[statistic](table)
    coords["cooccurrence"] = (("token", "label"), table.numpy())
    coords["count"] = (("token",), table.sum(1).numpy())
    measures = [
        Measure(
            "tokens/score_correlation",
            ("label",),
            lambda s: _rank_correlations(scores(s), company),
            attrs={
                "long_name": f"rank correlation of scores with co-occurrence, by {statistic}",
                "units": "",
                "bounds": [-1.0, 1.0],
                "statistic": statistic,
            },
        )
    ]
    if table.shape[1] == 2:
        lists = polarity_lists(table, **polarity)
        sides = torch.zeros(len(words))
        sides[lists.positive], sides[lists.negative] = 1.0, -1.0
        coords["polarity"] = (("token",), sides.numpy())
        measures += _of_two_labels(scores, lists.positive, lists.negative)
    return _needing(needs, [_label_scores(scores, coords), *measures])


def _needing(needs: frozenset[str], measures: Sequence[Measure]) -> list[Measure]:
    return [replace(measure, needs=measure.needs | needs) for measure in measures]


def _name(word: Phrase) -> str:
    """A word as the record calls it: itself, or the words of an n-gram in a row."""
    plain = word.tolist() if isinstance(word, Tensor) else word
    return " ".join(map(str, plain)) if isinstance(plain, list | tuple) else str(plain)


def _columns(labels: Sequence[Any] | None, counted: Sequence[Any]) -> list[int]:
    """The columns of the counts in the order of the model's outputs."""
    numbered = all(isinstance(label, int) for label in counted) and sorted(counted) == list(range(len(counted)))
    if labels is not None and sorted(map(str, labels)) == sorted(map(str, counted)):
        return [list(map(str, counted)).index(str(label)) for label in labels]
    if labels is not None and (len(labels) != len(counted) or not numbered):
        raise BadInput(f"labels= names {list(labels)}, the corpus was counted by {list(counted)}; name the same")
    return [list(counted).index(number) for number in range(len(counted))] if numbered else list(range(len(counted)))


def word_scores(
    snapshot: Snapshot, phrases: Sequence[Phrase], encode: Encode | None, labels: Sequence[Any] | None
) -> Float[Tensor, "phrase label"]:
    """Scores less their mean over labels, read once a step whoever asks; `labels` are checked against the outputs."""
    found: Tensor = snapshot.reading(_scores, _Phrases(phrases), _Held(encode))
    return found if labels is None else _one_per_label(found, labels)


def _label_scores(scores: Any, coords: Mapping[str, Any]) -> Measure:
    attrs = {"long_name": "score of the word for the label", "units": "", "question": "What does each word decide?"}
    return Measure("tokens/label_scores", ("token", "label"), scores, coords, attrs)


def _of_two_labels(scores: Any, positive: Tensor, negative: Tensor) -> list[Measure]:
    def lean(snapshot: Snapshot, rows: Tensor) -> Tensor:
        found = scores(snapshot)[rows]
        return found[:, 1] - found[:, 0]

    def right(snapshot: Snapshot) -> Tensor:
        return torch.stack(sign_accuracy(lean(snapshot, positive), lean(snapshot, negative))).mean()

    sign = {"long_name": "polar words with the right sign, mean of both sides", "bounds": [0.0, 1.0],
            "chance": "sign_accuracy_chance"}  # fmt: skip
    push = {"long_name": "push that all words share", "bounds": [-1.0, 1.0],
            "question": "Does every word lean to one label, whatever it means?"}  # fmt: skip
    return [
        Measure("tokens/sign_accuracy", (), right, attrs=sign),
        Measure(
            "tokens/sign_accuracy_chance", (), lambda s: 0.5, attrs={"long_name": "one sign for all, or at random"}
        ),
        Measure("tokens/asymmetry", (), lambda s: asymmetry_index(lean(s, positive), lean(s, negative)), attrs=push),
    ]


class _Phrases:
    """Phrases as part of a reading's key: by what they say, for a list or a tensor has no hash."""

    def __init__(self, phrases: Sequence[Phrase]) -> None:
        self.phrases = tuple(phrases)
        self.key = tuple((type(phrase).__name__, _name(phrase)) for phrase in self.phrases)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Phrases) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class _Held:
    """An encoding as part of a reading's key: by identity, for a mapping has no hash."""

    def __init__(self, encode: Encode | None) -> None:
        self.encode = encode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.encode is other.encode

    def __hash__(self) -> int:
        return id(self.encode)


def _scores(snapshot: Snapshot, asked: _Phrases, held: _Held) -> Tensor:
    found = label_scores(snapshot.model, asked.phrases, encode=held.encode, outputs=snapshot.select).detach().cpu()
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


def _rank_correlations(scores: Float[Tensor, "token label"], company: Float[Tensor, "token label"]) -> Tensor:
    """Spearman's, per label."""
    ranks = [_ranks(table.double()) for table in (scores, company)]
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
