"""What every test shares: one thread per process, fixed seeds, and where the data lies."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: pytest -n 2 on two cores must not start four threads

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public datasets, from TANGENTLENS_DATA or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("TANGENTLENS_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no datasets at {folder}; set TANGENTLENS_DATA to the folder that holds them")
    return folder
