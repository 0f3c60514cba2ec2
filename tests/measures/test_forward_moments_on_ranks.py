"""Moments accumulated by several processes are those of one process with all examples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tangentlens.measures.forward_moments import forward_moments
from tests.conftest import ROOT
from tests.measures.forward_examples import lazy_network


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_ranks_merge_their_moments_and_agree_to_the_last_bit(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.measures.ranked_moments", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-4000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2))
    features, outputs, targets, _ = lazy_network()
    whole = forward_moments(features, outputs, targets)
    torch.testing.assert_close(first["shared"].sums, whole.sums, rtol=1e-12, atol=1e-10)
    assert first["shared"].rows == 300 and first["shared"].widths == whole.widths
    for name, rows in (("shared", 300), ("first alone", 150)):  # a rank without examples gets the moments of the others
        assert torch.equal(first[name].sums, second[name].sums)
        assert first[name].rows == second[name].rows == rows
    for rank in (first, second):
        assert "at least one batch" in rank["errors"]["nobody"]
        assert "on different ranks" in rank["errors"]["different"]
