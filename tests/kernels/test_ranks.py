"""Kernels, products, spectra and moments do not depend on how many processes share the work."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch

from tangentlens.capture.factors import Formed
from tangentlens.distributed import ALONE, packed, unpacked
from tangentlens.errors import BadInput
from tangentlens.kernels import entk, entk_full
from tangentlens.kernels.blocks import Gradients
from tangentlens.kernels.stored import finished_regions
from tangentlens.kernels.tiles import Region, divided, rounds
from tests.conftest import ROOT
from tests.kernels.ranked import MODELS, M, N, dense

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All scenarios, run once on one, two and three processes."""
    folder = tmp_path_factory.mktemp("ranks")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.kernels.ranked", str(folder)]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def seen(folder: Path, size: int, scenario: str) -> list[dict[str, Any]]:
    files = [folder / str(size) / f"{scenario}.{rank}.pt" for rank in range(size)]
    return [torch.load(file, weights_only=False) for file in files if file.exists()]


@needs_fork
@pytest.mark.parametrize("size", [2, 3])
def test_every_reading_is_the_same_on_one_two_and_three_ranks(folder: Path, size: int) -> None:
    """Eleven rows and seven columns: neither can be divided evenly, and of two rows three ranks get none or one."""
    (one,) = seen(folder, 1, "all_readings")
    assert len(one) > 60 and {key.partition(":")[0] for key in one} == set(MODELS)
    for rank in seen(folder, size, "all_readings"):
        assert len(rank) > 40 if size == 2 else rank.keys() == one.keys()
        wrong = [key for key in rank if (rank[key] - one[key]).abs().max() > 1e-12 * one[key].abs().max()]
        assert wrong == []


@needs_fork
def test_a_group_of_one_is_a_process_alone(folder: Path) -> None:
    (one,) = seen(folder, 1, "all_readings")
    for name, build in MODELS.items():
        model, x, y = build()
        assert (one[f"{name}: entk_full of others"] - entk_full(model, x, y)).abs().max() < 1e-12


@needs_fork
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_example_is_captured_once_in_the_whole_job(folder: Path, size: int) -> None:
    ranks = seen(folder, size, "captures")
    total = {name: sum(rank[name] for rank in ranks) for name in ranks[0]}
    assert total == {"others": N + M} | {name: N for name in total if name != "others"}
    assert all(rank["entk"] <= -(-N // size) for rank in ranks)


@needs_fork
@pytest.mark.parametrize("size", [2, 3])
def test_where_rows_do_not_fit_blocks_of_every_rank_meet_all_others(folder: Path, size: int) -> None:
    (one,) = seen(folder, 1, "in_many_blocks")
    assert one["captured"] > 3 * (N + 3) + M
    for rank in seen(folder, size, "in_many_blocks"):
        assert all((rank[key] - one[key]).abs().max() < 1e-12 for key in ("entk_full", "others", "disk"))


@needs_fork
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_kernel_measured_inside_a_ddp_job_leaves_the_job_as_it_was(folder: Path, size: int) -> None:
    for rank in seen(folder, size, "in_a_training_job"):
        assert torch.equal(rank["plain"], rank["measured"]) and rank["groups"] == 1
        assert rank["kernel"].shape == (N, N)


@needs_fork
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_group_of_some_ranks_works_without_the_others(folder: Path, size: int) -> None:
    (one,) = seen(folder, 1, "of_a_group")
    ranks = seen(folder, size, "of_a_group")
    assert [bool(rank) for rank in ranks] == {1: [True], 2: [True, True], 3: [True, False, True]}[size]
    for rank in ranks:
        assert all((rank[key] - one[key]).abs().max() < 1e-12 * one[key].abs().max() for key in rank)


@needs_fork
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_with_different_weights_are_refused(folder: Path, size: int) -> None:
    for rank in seen(folder, size, "of_different_models"):
        assert "got parameter 0.weight of rank 1 unlike that of rank 0" in rank["error"]


@needs_fork
@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_fails_ends_all_with_its_message(folder: Path, size: int) -> None:
    *others, last = seen(folder, size, "a_rank_fails")
    for name in ("at once", "capturing", "moments", "iterating"):
        assert last["errors"][name] == "ZeroDivisionError: no such number"
        for rank in others:
            told = f"RankFailed: rank {size - 1} failed with ZeroDivisionError: no such number"
            assert rank["errors"][name].startswith(told)
    assert all(rank["errors"]["afterwards"] == "" and rank["seconds"] < 60 for rank in (*others, last))


@needs_fork
@pytest.mark.parametrize("size", [2, 3])
def test_regions_written_before_a_rank_failed_are_kept_for_any_number_of_ranks(folder: Path, size: int) -> None:
    *others, last = seen(folder, size, "a_rank_fails_while_writing")
    assert last["error"] == "OSError: the disk is gone"
    assert all("the disk is gone" in rank["error"] and "are kept" in rank["error"] for rank in others)
    out = folder / str(size) / "a_rank_fails_while_writing" / "kernel"
    assert 3 <= int(finished_regions(out, symmetric=True).triu().sum()) < 21
    model, x, _ = dense()
    assert (entk(model, x, out=out).whole() - entk(model, x)).abs().max() < 1e-12


@needs_fork
@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_dies_without_a_word_keeps_nobody_waiting(folder: Path, size: int) -> None:
    survivors = seen(folder, size, "a_rank_dies")
    assert len(survivors) == size - 1
    for rank in survivors:
        assert "lost the others: one of them ended without a word" in rank["error"] and rank["seconds"] < 60


def test_ranks_without_a_job_are_refused() -> None:
    model, x, _ = dense()
    with pytest.raises(BadInput, match="ranks= needs the processes of a job, got none; start with torchrun"):
        entk(model, x, ranks=True)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("block", "step"), [(3, 3), (4, 2), (100, 5)])
def test_every_pair_of_examples_meets_once(symmetric: bool, size: int, block: int, step: int) -> None:
    rows = [(13 * rank // size, 13 * (rank + 1) // size) for rank in range(size)]
    columns = None if symmetric else [(7 * rank // size, 7 * (rank + 1) // size) for rank in range(size)]
    met: dict[tuple[int, int], int] = {}
    for turn in rounds(rows, columns, block, step):
        for left in turn.rows:
            for right in turn.columns:
                for pair in ((n, m) for n in range(*left) for m in range(*right)):
                    met[pair] = met.get(pair, 0) + 1
    if symmetric:  # a block with itself meets as both (n, m) and (m, n), of which one is computed
        met = {(n, m): 1 for n, m in met for n, m in ((min(n, m), max(n, m)),)}
    expected = {(n, m) for n in range(13) for m in range(n if symmetric else 0, 13 if symmetric else 7)}
    assert met.keys() == expected and set(met.values()) == {1}


@pytest.mark.parametrize("cuts", [[0, 10], [0, 3, 10], [0, 4, 8, 9, 10]])
@pytest.mark.parametrize("others", [1, 7])
def test_a_pair_of_blocks_that_two_ranks_hold_is_shared_in_halves(cuts: list[int], others: int) -> None:
    """By examples, whatever the tiles: a rank's rows may all lie in one."""
    numbers = torch.arange(20.0)[:, None, None]

    def block(edges: list[int]) -> list[Region]:
        tiles = [
            (a, b, {"w": Gradients("w", torch.Size([1]), [Formed(numbers[a:b])])}) for a, b in pairwise(edges)
        ]  # fmt: skip
        return [Region(edges[0], edges[-1], tiles)]

    mine, theirs = block(cuts), block([10, 10 + others])
    pairs = []
    for left, right in (divided(mine, theirs, True, False), divided(theirs, mine, False, False)):
        rows, columns = (
            torch.cat([g["w"].factors[0].gradient.flatten() for part in side for _, _, g in part.tiles]).tolist()
            for side in (left, right)
        )
        pairs.append({tuple(sorted(pair)) for pair in product(rows, columns)})
    assert pairs[0] | pairs[1] == set(product(range(10), range(10, 10 + others))) and not pairs[0] & pairs[1]
    assert len(pairs[0]) == len(pairs[1])


def test_what_travels_is_the_same_value_around_the_same_numbers() -> None:
    value = {"a": [torch.arange(3), ("b", torch.eye(2)[:1])]}
    packet, tensors = packed(value)
    assert len(packet) < 200 and tensors[0] is value["a"][0]
    again = unpacked(packet, tensors)
    assert again["a"][1][0] == "b" and torch.equal(again["a"][1][1], torch.eye(2)[:1])
    assert ALONE.shares(7) == [(0, 7)] and ALONE.from_first(lambda: 3) == 3
