"""Claims and verdicts: what holds, what does not, and that judging never stops a study."""

from __future__ import annotations

import json
import math

import pytest
import torch

from tangentlens.studies import (
    STUDY_NAMES,
    Band,
    Claim,
    StudyResult,
    around,
    claims_json,
    judged,
    judged_all,
    study,
    table,
    within_share,
    write_claims,
)
from tangentlens.studies.claims import positions_are


def claim(accept: object, **fields: object) -> Claim:
    return Claim("A1", "the sky is blue", "Fig. 1", 0.5, "paper", accept, **fields)


def test_a_value_inside_the_band_holds_and_one_outside_does_not():
    assert judged(claim(Band(0.4, 0.6)), [0.5]).holds
    assert not judged(claim(Band(0.4, 0.6)), [0.7]).holds
    assert judged(claim(Band(0.4, 0.6)), [0.4]).holds  # the ends belong to it


def test_the_median_over_seeds_is_judged_and_the_spread_is_shown():
    verdict = judged(claim(Band(0.4, 0.6)), [0.5, 0.9, 0.55])
    assert verdict.holds and verdict.ours == 0.55 and verdict.spread == (0.5, 0.9) and verdict.seeds == 3


def test_every_seed_can_be_asked_to_agree():
    verdict = judged(claim(Band(0.4, 0.6), every_seed=True), [0.5, 0.9, 0.55])
    assert not verdict.holds and "every seed" in verdict.tolerance


def test_positions_have_no_median_so_every_seed_must_agree():
    rule = positions_are(1, 57)
    assert judged(claim(rule), [[1, 57], [1, 57]]).holds
    verdict = judged(claim(rule), [[1, 57], [1, 58]])
    assert not verdict.holds and verdict.ours == "[1, 57] | [1, 58]" and verdict.spread is None
    assert verdict.tolerance == "exactly [1, 57]"


@pytest.mark.parametrize("values", [[], [None], [0.5, None], [math.nan], [0.5, math.nan, 0.5], ["never"], None])
def test_what_was_not_measured_does_not_hold(values):
    assert not judged(claim(Band(0.4, 0.6)), values).holds


def test_nothing_measured_is_shown_as_nothing():
    assert judged(claim(Band(0, 1)), [None]).ours is None
    assert judged(claim(Band(0, 1)), [0.5, None]).ours == "0.5 | nothing"


def test_a_rule_that_breaks_is_a_claim_that_does_not_hold():
    verdict = judged(claim(lambda value: value["missing"]), [[1, 2]])
    assert not verdict.holds and "could not be judged" in verdict.note


def test_numbers_of_any_library_are_judged():
    assert judged(claim(Band(0.4, 0.6)), [torch.tensor(0.5)]).ours == pytest.approx(0.5)
    assert judged(claim(Band(1, 1)), [True]).holds


def test_a_band_says_what_it_accepts():
    assert [str(each) for each in (around(5, 1), within_share(10, 0.1), Band(), Band(high=2))] == [
        "4 .. 6", "9 .. 11", "any number", "<= 2",
    ]  # fmt: skip
    assert math.nan not in Band()
    with pytest.raises(ValueError, match="low <= high"):
        Band(2, 1)


def test_the_json_holds_every_field_of_the_contract_and_no_nan(tmp_path):
    verdicts = [judged(claim(Band(0.4, 0.6)), [0.5, 0.6]), judged(claim(Band(0, 1)), [math.nan])]
    write_claims(verdicts, tmp_path / "claims.json")
    rows = json.loads((tmp_path / "claims.json").read_text())
    assert rows == json.loads(claims_json(verdicts))
    wanted = {"id", "sentence", "where", "claimed", "source", "ours", "spread", "seeds", "tolerance", "holds"}
    assert wanted <= set(rows[0])
    assert rows[0]["spread"] == [0.5, 0.6] and rows[1]["ours"] is None and rows[1]["holds"] is False


def test_the_table_names_the_claims_that_do_not_hold():
    verdicts = [
        judged(claim(Band(0.4, 0.6)), [0.5], baseline=0.1),
        judged(Claim("B2", "it rains", "Sec. 2", None, "second-hand", Band(high=1)), [3.0], note="in spring"),
    ]
    text = table(verdicts)
    assert "1 of 2 claims hold" in text and text.splitlines()[-1] == "not holding: B2"
    assert "the sky is blue" in text and "second-hand" in text and "in spring" in text and " NO " in text
    assert max(map(len, text.splitlines())) <= 140


def test_long_positions_go_below_the_row():
    text = table([judged(claim(positions_are(1)), [list(range(30))])])
    assert "ours: [0, 1, 2," in text


def test_an_empty_table_is_still_a_table():
    assert "0 of 0 claims hold" in table([])


def test_a_result_holds_only_when_every_claim_does():
    good, bad = judged(claim(Band(0, 1)), [0.5]), judged(claim(Band(0, 1)), [2.0])
    assert StudyResult("one", [good]).all_hold and not StudyResult("two", [good, bad]).all_hold
    assert "left out" in str(StudyResult("three", [good], notes=("left out: the rest",)))


def test_an_unknown_study_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="lin2025"):
        study("nobody1999")
    assert "lin2025" in STUDY_NAMES


def test_the_study_of_a_paper_is_found_by_its_name():
    found = study("lin2025")
    assert found.name == "lin2025" and "2510.00468" in found.paper


def test_claims_are_judged_by_their_ids_and_one_without_values_does_not_hold():
    claims = (claim(Band(0, 1)), Claim("B2", "it rains", "Sec. 2", None, "paper", Band(high=1)))
    first, second = judged_all(claims, {"A1": [0.5]}, {"A1": 0.1}, {"B2": "dry year"})
    assert first.holds and first.baseline == 0.1
    assert not second.holds and "dry year" in second.note and "no value" in second.note
    with pytest.raises(ValueError, match="C3"):
        judged_all(claims, {"C3": [1.0]})
