"""Which steps are due."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from tangentlens.record import at, either, every, log_spaced, when, when_changed
from tangentlens.record.schedule import Moment, Schedule


def due_steps(schedule: Schedule, last: int) -> list[int]:
    return [step for step in range(last + 1) if schedule.due(Moment(step, {}, {}, {}, step - 1))]


def due_when_shown(schedule: Schedule, shown: list[int]) -> list[int]:
    """Steps found due by a loop that shows these only."""
    before = [-1, *shown[:-1]]
    return [step for step, last in zip(shown, before, strict=True) if schedule.due(Moment(step, {}, {}, {}, last))]


def due_by_values(schedule: Schedule, values: list[float]) -> list[int]:
    """Steps found due when the scalar takes these values."""
    due, before, recorded = [], {}, {}
    for step, value in enumerate(values):
        scalars = {"loss": value}
        if schedule.due(Moment(step, scalars, before, recorded)):
            due.append(step)
            recorded = scalars
        before = scalars
    return due


def test_every_counts_from_its_start() -> None:
    assert due_steps(every(5, start=2), 20) == [2, 7, 12, 17]


def test_at_names_its_steps() -> None:
    assert due_steps(at(3, 0, 7), 20) == [0, 3, 7]


@settings(max_examples=60, deadline=None)
@given(points=st.integers(2, 80), last=st.integers(1, 5000))
def test_log_spacing_gives_exactly_as_many_points_as_asked_for_or_every_step(points: int, last: int) -> None:
    planned = log_spaced(points, last=last).planned
    assert len(planned) == min(points, last + 1) == len(set(planned))
    assert planned[0] == 0 and planned[-1] == last and list(planned) == sorted(planned)


def test_log_spacing_without_an_end_has_its_points_within_the_horizon_and_goes_on_at_the_same_density() -> None:
    steps = due_steps(log_spaced(50), 10_000)
    assert steps[:4] == [0, 1, 2, 3] and 40 <= len(steps) <= 50
    decades = [sum(10**power < step <= 10 ** (power + 1) for step in steps) for power in (2, 3)]
    assert decades == [12, 12] and log_spaced(50).due(Moment(1_000_000, {}, {}, {}, 999_999))


@settings(max_examples=20, deadline=None)
@given(gap=st.integers(1, 90), points=st.integers(2, 60))
def test_a_step_that_was_passed_over_is_stood_in_for_by_the_next_one_shown(gap: int, points: int) -> None:
    shown = list(range(0, 400 + gap, gap))
    for schedule in (log_spaced(points, last=400), log_spaced(points), every(7), at(5, 390)):
        wanted = due_steps(schedule, shown[-1])
        stand_ins = {next(step for step in shown if step >= want) for want in wanted}
        assert due_when_shown(schedule, shown) == sorted(stand_ins)


def test_a_level_is_due_once_when_it_is_passed() -> None:
    assert due_by_values(when("loss", below=0.5), [1.0, 0.6, 0.5, 0.4, 0.3]) == [2]
    assert due_by_values(when("loss", above=0.5), [0.1, 0.6, 0.7, 0.2, 0.9]) == [1, 4]


def test_a_change_is_measured_against_the_recorded_value() -> None:
    assert due_by_values(when_changed("loss", 0.5), [1.0, 0.9, 0.6, 0.49, 0.3, 0.2]) == [0, 3, 5]


def test_either_joins_schedules_and_knows_that_values_matter() -> None:
    both = either(every(10), at(3))
    assert due_steps(both, 20) == [0, 3, 10, 20] and both.planned == (3,)
    assert not both.needs_scalars and either(both, when("loss", above=1.0)).needs_scalars
    assert str(both) == "every 10 steps from 0; at 1 named steps"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: every(0), "at least 1 whole step, got 0"),
        (lambda: at(), "takes steps from 0 on"),
        (lambda: at(-1), "takes steps from 0 on"),
        (lambda: log_spaced(1), "at least 2 points"),
        (lambda: when("loss"), "above= or below=, one of them"),
        (lambda: every(5, start=-1), "at least 1 whole step, got 5 from -1"),
        (lambda: either(), "takes schedules, got"),
        (lambda: when_changed("loss", -1), "a share is above 0, got -1"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
