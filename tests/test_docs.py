"""The documentation's Python runs, page by page, as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tangentlens.record import at
from tests.record.runs import recorded

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "docs/index.md", "docs/add-a-measure.md", "docs/recording.md", "docs/scale.md"]
PAGES_ON_RUNS = ["docs/record.md", "docs/report.md"]
"""They speak of runs their reader has recorded before."""


@pytest.mark.filterwarnings("error::UserWarning:tangentlens")  # a measure that fails is only a warning
@pytest.mark.parametrize("page", [*PAGES, *PAGES_ON_RUNS])
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "docs/recording.md":
        pytest.importorskip("lightning"), pytest.importorskip("transformers"), pytest.importorskip("tensorboard")
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} shows no Python"
    monkeypatch.chdir(tmp_path)  # runs are written beside the reader, here beside nobody
    if page in PAGES_ON_RUNS:
        for run in ("mine", "control"):
            recorded(tmp_path / "runs" / run, None, at(0, 100), steps=101)
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number}", "exec", dont_inherit=True), names)


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_every_command_is_documented() -> None:
    from tangentlens.cli.commands import COMMANDS

    page = (ROOT / "docs/command-line.md").read_text()
    assert not [name for name in COMMANDS if f"tangentlens {name}" not in page]
