"""A recording run killed at random moments: nothing committed is lost, nothing is torn, nothing is measured twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

from tangentlens.record import errors, open_record
from tests.conftest import ROOT

KILLS = int(os.environ.get("TANGENTLENS_KILLS", "5"))
"""30 in the long form of this test."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.timeout(600)
def test_a_run_killed_again_and_again_ends_bit_for_bit_like_an_uninterrupted_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.record.killed", str(tmp_path), str(KILLS), "0"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    reader = json.loads((tmp_path / "reader.json").read_text())
    print(result, reader)
    assert result["failed"] == 0, done.stderr
    assert result["killed"] == KILLS
    assert reader["wrong"] == [] and reader["seen"] >= result["runs"], reader
    whole = open_record(tmp_path / "whole")
    for run in range(1, result["runs"] + 1):
        same_bit_for_bit(whole, open_record(tmp_path / f"killed_{run}"))


def same_bit_for_bit(whole: xr.DataTree, killed: xr.DataTree) -> None:
    """Everything but the recorder's own times."""
    assert errors(whole) == errors(killed) == [] and killed.attrs["state"] == "finished"
    assert {node.path for node in whole.subtree} == {node.path for node in killed.subtree}
    for node in whole.subtree:
        if node.path not in ("/", "/overhead"):
            mine, theirs = node.to_dataset(), killed[node.path].to_dataset()
            xr.testing.assert_identical(mine, theirs)
            assert all(mine[name].values.tobytes() == theirs[name].values.tobytes() for name in mine.variables)
