"""Studies are found by name, their claims printed and stored, and a failing claim is an exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tangentlens import studies
from tangentlens.cli import main, reproduce
from tangentlens.studies import Band, Claim, Study, StudyOptions, StudyResult, judged
from tangentlens.studies.claims_page import Seen, claims_page

HEIGHT = Claim("T1", "The tower is 324 m high", "p. 1", 324.0, "paper", Band(320, 328), unit="m")


FIELDS = {"id", "sentence", "where", "claimed", "source", "ours", "spread", "seeds", "tolerance", "holds"}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch):
    """Let every study measure the tower at the given heights, and keep what it was told."""
    told: list[StudyOptions] = []

    def heights(*values: float) -> list[StudyOptions]:
        def run(options: StudyOptions) -> StudyResult:
            told.append(options)
            return StudyResult("tower", [judged(HEIGHT, list(values))], notes=(f"{options.data}/stairs is not there",))

        made = Study("tower", "A tower", "Guide, 1889", run)
        monkeypatch.setattr("tangentlens.cli.reproduce.study", lambda name: made)
        return told

    return heights


def test_claims_that_hold_are_exit_status_0(measured, capsys) -> None:
    measured(323.0, 325.0)
    assert main(["reproduce", "lin2025"]) == 0
    assert "1 of 1 claims hold" in capsys.readouterr().out


def test_a_claim_outside_its_tolerance_is_exit_status_4_and_still_shown(measured, tmp_path: Path, capsys) -> None:
    measured(300.0, 302.0)
    file = tmp_path / "new folder" / "claims.json"
    assert main(["reproduce", "lin2025", "--json", str(file)]) == 4
    shown = capsys.readouterr()
    assert "301" in shown.out
    assert "T1" in shown.err
    (claim,) = json.loads(file.read_text())
    assert claim["holds"] is False
    assert claim["ours"] == 301.0
    assert set(claim) >= FIELDS


def test_all_runs_every_study_and_keeps_their_folders_apart(measured, tmp_path: Path) -> None:
    told = measured(324.0)
    file = tmp_path / "claims.json"
    words = ["reproduce", "all", "--quick", "--seeds", "2", "--record", str(tmp_path / "kept"), "--json", str(file)]
    assert main(words) == 0
    assert len(told) == len(studies.STUDY_NAMES) == len(json.loads(file.read_text()))
    assert all(options.quick and options.seeds == 2 for options in told)
    assert len({options.run for options in told}) == len(told)


def test_the_short_version_has_its_own_number_of_seeds_unless_told(measured, monkeypatch: pytest.MonkeyPatch) -> None:
    told = measured(324.0)
    main(["reproduce", "lin2025", "--quick"])
    made = replace(reproduce.study("lin2025"), quick_seeds=1)
    monkeypatch.setattr("tangentlens.cli.reproduce.study", lambda name: made)
    for words in (["--quick"], ["--quick", "--seeds", "2"], []):
        main(["reproduce", "lin2025", *words])
    assert [options.seeds for options in told] == [3, 1, 2, 3]


def test_a_page_shows_the_claims_and_keeps_what_was_written_below_them(measured, tmp_path: Path) -> None:
    words = ["reproduce", "lin2025", "--quick", "--seeds", "2", "--pages", str(tmp_path / "pages")]
    words += ["--data", str(tmp_path / "data")]
    measured(323.0, 325.0)
    main(words)
    page = tmp_path / "pages" / "tower.md"
    assert "- DATA/stairs is not there" in page.read_text()
    assert "**1 of 1 claims hold.**" in page.read_text()
    assert "`tangentlens reproduce tower --quick --seeds 2`" in page.read_text()
    page.write_text(page.read_text() + "\n## Reading the table\n\nIt grows in summer.\n")
    measured(300.0, 302.0)
    main(words)
    shown = page.read_text()
    assert "**0 of 1 claims hold.**" in shown and "1 of 1" not in shown
    assert shown.count("It grows in summer.") == shown.count("## Reading the table") == 1


def test_a_page_is_one_row_a_claim_whatever_its_words_are(tmp_path: Path) -> None:
    odd = Claim("T|2", "|W|^2 < 3 and a_i_j *", "p. 2", "1 | 2", "paper", Band(0, 3))
    verdicts = [judged(HEIGHT, 324.0, baseline=0.0), judged(odd, 2.0, note="a * b | c")]
    seen = Seen("tangentlens reproduce tower", 3.0, date(2026, 1, 2), "torch 2 on 2 cores")
    lines = claims_page(Study("tower", "A tower", "Guide", lambda _: StudyResult("tower", [])), verdicts, seen)
    rows = [line for line in lines.splitlines() if line.startswith("|")]
    bars = [line.replace("\\|", "").count("|") for line in rows]
    assert len(rows) == 4 and len(set(bars)) == 1


def test_datasets_are_looked_for_where_the_user_says(measured, tmp_path: Path, monkeypatch) -> None:
    told = measured(324.0)
    monkeypatch.setenv("TANGENTLENS_DATA", str(tmp_path / "set"))
    assert main(["reproduce", "sun2023"]) == 0
    assert main(["reproduce", "sun2023", "--data", str(tmp_path / "given")]) == 0
    assert [options.data for options in told] == [tmp_path / "set", tmp_path / "given"]


@pytest.mark.parametrize(
    ("words", "says"), [(["lin2024"], "PAPER is one of lin2025"), (["all", "--seeds", "0"], "--seeds is at least 1")]
)
def test_what_cannot_be_reproduced_is_exit_status_2(words: list[str], says: str, capsys) -> None:
    assert main(["reproduce", *words]) == 2
    assert says in capsys.readouterr().err
