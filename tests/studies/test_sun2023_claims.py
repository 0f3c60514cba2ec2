"""The claims of the token study hold for what they say, and fail for what contradicts them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tangentlens.measures.drift import Drift
from tangentlens.studies.claims import Verdict
from tangentlens.studies.sun2023.formulas import Ratios, formula_verdicts
from tangentlens.studies.sun2023.lazy import LazyRun
from tangentlens.studies.sun2023.lazy_claims import lazy_verdicts
from tangentlens.studies.sun2023.order import OrderRun
from tangentlens.studies.sun2023.order_claims import edge_verdicts


def _run(activation: str, width: int, seed: int, **seen: float) -> LazyRun:
    change = seen.pop("change", 0.03 if width == 1024 else 0.3)
    values = {"correlation": 0.996, "relative_error": 0.08, "group_correlation": 0.96, "uncentred_correlation": 0.9,
              "counting_correlation": 0.88, "empirical_correlation": 0.99, "signs": 1.0, **seen}  # fmt: skip
    nothing = torch.zeros(3)
    return LazyRun(
        activation, width, seed, drift=Drift(change, 1.0, 1.0, 0.5, 0.9), trained=nothing, predicted=nothing, **values
    )


def _held(verdicts: list[Verdict]) -> dict[str, bool]:
    return {verdict.id: verdict.holds for verdict in verdicts}


RUNS = [_run(a, width, seed) for a in ("relu", "gelu", "tanh") for width in (64, 1024) for seed in range(3)]


@pytest.mark.parametrize(
    ("id_", "width", "seen"),
    [
        ("F.relu", 1024, {"correlation": 0.98}),
        ("F.relu error", 1024, {"relative_error": 0.12}),
        ("F.relu drift", 1024, {"change": 0.05}),
        ("F.relu d=64", 64, {"correlation": 0.955}),  # what knowing each word's group gives
        ("F.relu width", 64, {"change": 0.03}),
    ],
)
def test_each_claim_about_the_flow_falls_with_the_number_it_is_about(id_: str, width: int, seen: dict) -> None:
    held = _held(lazy_verdicts(RUNS, 1024))
    assert all(held.values()), held
    fallen = [_run("relu", width, run.seed, **seen) if (run.activation, run.width) == ("relu", width) else run
              for run in RUNS]  # fmt: skip
    assert {name for name, holds in _held(lazy_verdicts(fallen, 1024)).items() if not holds} == {id_}


def test_the_baseline_of_the_flow_is_what_groups_alone_would_give() -> None:
    by_id = {verdict.id: verdict for verdict in lazy_verdicts(RUNS, 1024)}
    assert by_id["F.gelu"].baseline == pytest.approx(0.96)


def test_word_order_read_at_the_edges_is_foreseen_by_how_many_edges_there_are() -> None:
    runs = {2: [OrderRun((0.7, 0.69))], 1: [OrderRun((0.6, 0.63))], 0: [OrderRun((0.5, 0.47))]}
    assert set(_held(edge_verdicts(runs)).values()) == {True}
    one_edge_everywhere = dict.fromkeys(runs, runs[1])
    assert _held(edge_verdicts(one_edge_everywhere)) == {"S3.edges 2": True, "S3.edges 1": True, "S3.edges 0": False}
    both_edges_everywhere = dict.fromkeys(runs, runs[2])
    assert not _held(edge_verdicts(both_edges_everywhere))["S3.edges 1"]


def _ratios(name: str, width: int, mean: float) -> Ratios:
    scatter = torch.linspace(-1, 1, 24).double() / width**0.5
    return Ratios(name, width, mean + scatter, mean + scatter)


def test_formulas_are_judged_at_every_width_by_how_many_comparisons_there_are() -> None:
    found = [_ratios(name, width, 1.0) for name in "abcdefghij" for width in (16, 64)]
    assert _held(formula_verdicts(found))["K.widths"]
    shifted = found[0].error
    mild = [replace(found[0], diagonal=found[0].diagonal + 2.6 * shifted), *found[1:]]
    (verdict,) = [verdict for verdict in formula_verdicts(mild) if verdict.id == "K.widths"]
    assert verdict.holds and "beyond 2 standard errors 1, by chance 1.1: a d=16 2.6" in verdict.note
    wrong = [replace(found[0], diagonal=found[0].diagonal + 4 * shifted), *found[1:]]
    assert not _held(formula_verdicts(wrong))["K.widths"] and _held(formula_verdicts(wrong))["K.a"]
