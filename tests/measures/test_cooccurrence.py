"""Counts by label, what is read from them, and what is refused."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from tangentlens.errors import BadInput
from tangentlens.measures.cooccurrence import (
    context_counts,
    cooccurrence,
    difference,
    pmi,
    polarity_lists,
    rates,
    shares,
)
from tests.reference.sun2023 import context_counts as slow_context_counts

CORPUS = [(["a", "fine", "fine", "film"], 1), (["a", "dull", "film"], 0), (["fine"], 1)]


def test_occurrences_are_counted_per_label_and_repeated_words_count_again() -> None:
    seen = cooccurrence(CORPUS)
    assert seen.labels == (0, 1) and seen.documents.tolist() == [1, 2]
    assert seen.of(["fine", "film", "a"]).tolist() == [[0, 3], [1, 1], [1, 1]]
    assert cooccurrence(CORPUS, once_per_document=True).of(["fine"]).tolist() == [[0, 2]]


def test_bigrams_are_tuples_of_neighbours() -> None:
    seen = cooccurrence(CORPUS, ngram=2)
    assert set(seen.tokens) == {("a", "fine"), ("fine", "fine"), ("fine", "film"), ("a", "dull"), ("dull", "film")}


def test_a_stream_is_read_once_and_never_kept() -> None:
    def stream() -> Iterator[tuple[list[int], int]]:
        for number in range(5_000):
            yield [number % 7, 7], number % 2

    seen = cooccurrence(stream())
    assert len(seen.tokens) == 8 and seen.of([7]).tolist() == [[2500, 2500]]


documents = st.lists(st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 2)), min_size=1)


@given(documents, documents)
def test_counts_of_two_parts_add_up_to_those_of_the_whole(first: list, second: list) -> None:
    labels = (0, 1, 2)
    parts = cooccurrence(first, labels=labels) + cooccurrence(second, labels=labels)
    whole = cooccurrence([*first, *second], labels=labels)
    assert torch.equal(parts.of(whole.tokens), whole.counts)
    assert torch.equal(parts.documents, whole.documents)


def test_rates_differences_and_shares_are_as_defined() -> None:
    counts = torch.tensor([[1.0, 3.0], [5.0, 5.0]])
    assert rates(counts).tolist() == [0.5, 0.0]
    assert difference(counts).tolist() == [2.0, 0.0]
    assert shares(counts)[0].tolist() == [0.25, 0.75]


@given(st.lists(st.lists(st.integers(1, 9), min_size=3, max_size=3), min_size=2, max_size=6))
def test_pmi_averages_to_the_mutual_information_and_is_zero_for_independence(rows: list[list[int]]) -> None:
    counts = torch.tensor(rows, dtype=torch.float64)
    joint = counts / counts.sum()
    assert (joint * pmi(counts)).sum() >= -1e-12
    independent = torch.outer(counts.sum(1), counts.sum(0))
    assert pmi(independent).abs().max() < 1e-12


def test_pmi_of_a_pair_never_seen_is_minus_infinity_until_it_is_smoothed() -> None:
    counts = torch.tensor([[4.0, 0.0], [0.0, 4.0]])
    assert pmi(counts)[0, 1] == -math.inf
    assert torch.isfinite(pmi(counts, smoothing=0.5)).all()


def test_polarity_lists_follow_their_thresholds() -> None:
    counts = torch.tensor([[1.0, 9.0], [9.0, 1.0], [8.0, 8.0], [0.0, 5.0], [30.0, 36.0], [3.0, 7.0]])
    lists = polarity_lists(counts)
    assert lists.positive.tolist() == [0]
    assert lists.negative.tolist() == [1]
    assert lists.neutral.tolist() == [2]  # row 4 has rate .09, but a gap of 6
    assert polarity_lists(counts, minimum=4, rate=0.3).positive.tolist() == [0, 3, 5]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(2, 7))
def test_context_counts_are_those_of_the_double_loop(tokens: list[int], window: int) -> None:
    assert torch.equal(context_counts(torch.tensor(tokens), 4, window), slow_context_counts(tokens, 4, window))


def test_bad_corpora_are_refused_with_the_place() -> None:
    with pytest.raises(BadInput, match="document 1, label 0, is empty"):
        cooccurrence([(["a"], 1), ([], 0)])
    with pytest.raises(BadInput, match="document 0 is a string"):
        cooccurrence([("a fine film", 1)])
    with pytest.raises(BadInput, match=r"document 0 has label 2; the labels named are \(0, 1\)"):
        cooccurrence([(["a"], 2)], labels=(0, 1))
    with pytest.raises(BadInput, match="got none"):
        cooccurrence([])
    with pytest.raises(BadInput, match="1 words never occur.*'awful'"):
        cooccurrence(CORPUS).of(["awful"])
    with pytest.raises(BadInput, match="two labels, got 3"):
        rates(torch.ones(2, 3))
    with pytest.raises(BadInput, match=r"each once, got \(0, 1, 1\)"):
        cooccurrence(CORPUS, labels=(0, 1, 1))
    with pytest.raises(BadInput, match="smoothing is added to every count, at least 0, got -1"):
        pmi(torch.ones(2, 2), smoothing=-1)


def test_a_corpus_of_one_class_has_rates_and_no_pmi_with_the_class_it_lacks() -> None:
    seen = cooccurrence([(["a", "film"], 1), (["a"], 1)], labels=(0, 1))
    assert rates(seen.counts).tolist() == [1.0, 1.0]
    assert polarity_lists(seen.counts, minimum=1).positive.tolist() == [0]
    assert pmi(seen.counts)[:, 0].isnan().all() and pmi(seen.counts)[:, 1].abs().max() < 1e-12


def test_a_token_outside_the_vocabulary_is_refused_and_not_counted_as_another() -> None:
    with pytest.raises(BadInput, match=r"token numbers 0..2 of a vocabulary of 3, got 0..5; raise vocabulary="):
        context_counts(torch.tensor([0, 1, 5]), 3, 3)  # 0 * 3 + 5 is the pair (1, 2)
    with pytest.raises(BadInput, match=r"got -1..1"):
        context_counts(torch.tensor([0, -1, 1]), 3, 3)
    with pytest.raises(BadInput, match="at least 2 words, got 0"):
        context_counts(torch.tensor([0, 1]), 3, 0)
    with pytest.raises(BadInput, match=r"in a row, got shape \(2, 2\)"):
        inspect.unwrap(context_counts)(torch.zeros(2, 2, dtype=torch.long), 3, 2)  # the tests check types before


@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
def test_words_and_labels_of_tensors_and_arrays_are_numbers_and_count_as_equal(kind: Callable[..., Any]) -> None:
    seen = cooccurrence([(kind([1, 2]), torch.tensor(0)), (kind([1, 2]), np.int64(0)), (kind([2]), 1)])
    assert seen.labels == (0, 1) and seen.tokens == (2, 1)
    assert seen.of([1, 2]).tolist() == [[2, 0], [2, 1]]
    assert cooccurrence([([torch.tensor(1), torch.tensor(1)], 0)]).of([1]).tolist() == [[2]]
    assert cooccurrence([(kind([1, 2]), 0)], ngram=2, labels=torch.arange(2)).of([torch.tensor([1, 2])]).tolist() == [
        [1, 0]
    ]


def test_bigrams_are_found_as_lists_as_tuples_and_in_one_string() -> None:
    seen = cooccurrence(CORPUS, ngram=2)
    assert seen.of([("a", "fine"), ["a", "fine"], "a fine"]).tolist() == [[0, 1]] * 3
    with pytest.raises(BadInput, match="1 words never occur in the corpus, \\['a film'\\]"):
        seen.of(["a film"])
    with pytest.raises(BadInput, match="document 0 should be one list of words"):
        cooccurrence([(torch.zeros(2, 2), 0)])
