"""Blocks along training: followed by content, dated by declared rules, alarms at the rate asked for."""

from __future__ import annotations

import pytest
import torch

from tangentlens.measures.cliffs import Cliffs, cliffs
from tangentlens.measures.tracking import (
    change_points,
    first_learned_cliff,
    followed_blocks,
    lag_of_peak,
    onset,
    rate_of_change,
    shared_percent,
)


def orthonormal(rows: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(rows, rows, generator=generator, dtype=torch.float64)).Q


def test_a_block_that_moves_up_the_spectrum_is_followed_by_its_content():
    basis = orthonormal(20, 0)
    block, rest = basis[:, :4], basis[:, 4:]

    def with_block_at(start: int) -> torch.Tensor:
        return torch.cat([rest[:, :start], block, rest[:, start:]], 1)

    places = followed_blocks([with_block_at(9), with_block_at(6), with_block_at(2)], (2, 6))
    assert places == [(9, 13), (6, 10), (2, 6)]


def test_a_followed_block_must_exist_at_the_last_checkpoint():
    with pytest.raises(ValueError, match="5 modes"):
        followed_blocks([torch.eye(5)], (3, 7))


def test_a_block_wider_than_what_it_is_looked_for_in_is_refused():
    modes = [torch.eye(8)[:, :3], torch.eye(8)]
    with pytest.raises(ValueError, match="4 modes.* got 3"):
        followed_blocks(modes, (2, 6))
    with pytest.raises(ValueError, match="got 2"):
        followed_blocks([torch.eye(8), torch.eye(8)], (2, 6), reach=2)


def test_the_share_of_two_spans_is_that_of_the_smaller_one():
    basis = orthonormal(10, 1)
    assert shared_percent(basis[:, :3], basis[:, :6]) == pytest.approx(100.0)
    assert shared_percent(basis[:, :4], basis[:, 2:6]) == pytest.approx(50.0)


def test_the_rate_of_a_line_is_its_slope_on_any_grid():
    steps = [0, 10, 30, 100, 105]
    rate = rate_of_change(steps, [2 + 0.5 * step for step in steps])
    torch.testing.assert_close(rate, torch.full((5,), 0.5, dtype=torch.float64))
    with pytest.raises(ValueError, match="two steps"):
        rate_of_change([1], [2.0])


def test_the_onset_is_the_first_step_that_reaches_the_threshold():
    assert onset([0, 10, 20, 30], [0.1, 0.5, 0.4, 0.9], 0.5) == 10
    assert onset([0, 10], [0.1, 0.2], 0.5) is None


def test_the_lag_of_a_peak_is_negative_when_it_comes_before_the_onset():
    steps = list(range(0, 110, 10))
    overlap = [100 / (1 + 2.718 ** (-(step - 40) / 8)) for step in steps]
    accuracy = [float(step >= 70) for step in steps]
    found = lag_of_peak(steps, overlap, accuracy, threshold=0.5)
    assert (found.peak, found.onset, found.lag, found.grid) == (40, 70, -30, 10)
    assert lag_of_peak(steps, overlap, [0.0] * len(steps), threshold=0.5).lag is None


def test_a_peak_of_a_series_with_gaps_is_refused():
    with pytest.raises(ValueError, match="finite values.* near step 10"):
        lag_of_peak([0, 10, 20, 30], [1.0, 2.0, float("nan"), 4.0], [0.0] * 4, threshold=0.5)


def plateau(count: int, drop: float) -> torch.Tensor:
    levels = torch.cat([torch.full((count,), drop, dtype=torch.float64), torch.ones(60 - count, dtype=torch.float64)])
    return levels * torch.exp(-1e-3 * torch.arange(60, dtype=torch.float64))


def test_a_learned_cliff_is_reported_when_it_has_held_for_two_records():
    flat, risen = plateau(20, 1.0), plateau(20, 3.0)
    found = [cliffs(values, flat) for values in (flat, risen, flat, risen, risen, risen)]
    assert first_learned_cliff([0, 10, 20, 30, 40, 50], found) == 40
    assert first_learned_cliff([0, 10, 20], found[:3]) is None
    assert first_learned_cliff([0, 10], found[:2], hold=1) == 10


def test_cliffs_at_another_place_in_every_record_have_not_held():
    flat = plateau(20, 1.0)
    found = [cliffs(plateau(count, 3.0), flat) for count in (20, 26, 32, 32)]
    assert all(bool(each.learned.all()) and len(each) == 1 for each in found)
    assert first_learned_cliff([0, 10, 20], found[:3]) is None
    assert first_learned_cliff([0, 10, 20, 30], found) == 30


def test_a_cliff_that_was_there_is_never_learned():
    there = plateau(20, 3.0)
    assert first_learned_cliff([0, 1, 2], [cliffs(there, there)] * 3) is None
    without: list[Cliffs] = [cliffs(there)]
    with pytest.raises(ValueError, match="initial spectrum"):
        first_learned_cliff([0], without)


def walk(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(0)


def test_a_random_walk_raises_no_more_alarms_than_asked_for():
    alarms = sum(bool(change_points(range(50), walk(50, seed).tolist(), false_alarms=0.1)) for seed in range(30))
    assert alarms <= 6


def test_a_change_of_slope_is_noticed_soon_and_dated_to_where_it_happened():
    noticed = 0
    for seed in range(20):
        series = walk(60, seed)
        series[30:] += 4.0 * torch.arange(1, 31)
        found = change_points([10 * step for step in range(60)], series.tolist())
        if found and 290 <= found[0].dated <= 320 and found[0].noticed <= 380:
            noticed += 1
    assert noticed >= 18


def test_what_was_found_by_a_step_is_the_same_however_the_series_goes_on():
    series = walk(200, 0)
    series[20:] += 3.0 * torch.arange(1, 181)
    whole = change_points(range(200), series.tolist())
    assert len(whole) >= 1 and whole[0].noticed <= 40
    for length in (21, 25, 30, 50, 100):
        prefix = change_points(range(length), series[:length].tolist())
        assert prefix == [each for each in whole if each.noticed < length]


def test_a_series_with_gaps_in_it_is_refused():
    with pytest.raises(ValueError, match="step 20"):
        change_points([0, 10, 20, 30], [1.0, 2.0, float("nan"), 3.0])


def test_a_straight_line_has_no_change_point():
    assert change_points(range(30), [0.1 * step for step in range(30)]) == []
    with pytest.raises(ValueError, match="one value per step"):
        change_points(range(3), [1.0])
