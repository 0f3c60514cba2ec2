"""The documentation's Python runs, page by page, as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "docs/index.md", "docs/add-a-measure.md"]


@pytest.mark.filterwarnings("error::UserWarning:tangentlens")  # a measure that fails is only a warning
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} shows no Python"
    monkeypatch.chdir(tmp_path)  # runs are written beside the reader, here beside nobody
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number}", "exec", dont_inherit=True), names)


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_every_command_is_documented() -> None:
    from tangentlens.cli.commands import COMMANDS

    page = (ROOT / "docs/command-line.md").read_text()
    assert not [name for name in COMMANDS if f"tangentlens {name}" not in page]
