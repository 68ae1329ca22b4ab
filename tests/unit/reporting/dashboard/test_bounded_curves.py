"""Curves stay small, and lose neither a spike nor the mean."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.reporting.dashboard.bounded_curves import Changes, Curves, rounded


def filled(values: dict[int, float], most: int = 1000) -> Curves:
    curves = Curves(most)
    for step, value in values.items():
        curves.add(step, {"loss": value})
    return curves


def test_few_steps_stand_as_they_are() -> None:
    curves = filled({1: 0.5, 2: 0.25, 7: 0.125})
    assert list(curves.steps) == [1, 2, 7]
    assert curves.means("loss") == [0.5, 0.25, 0.125]
    assert not curves.are_summed_up


def test_a_spike_among_many_steps_is_seen() -> None:
    values = dict.fromkeys(range(1, 100_001), 1.0) | {54_321: 40.0}
    curves = filled(values)
    assert 500 <= len(curves.steps) <= 1000
    assert curves.steps[-1] == 100_000
    assert max(curves.greatest("loss")) == 40.0
    place = curves.greatest("loss").index(40.0)
    assert curves.steps[place - 1] < 54_321 <= curves.steps[place]
    assert curves.least("loss")[place] == 1.0


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=120),  # steps between steps: a log may lack some
    st.lists(st.floats(-1e6, 1e6), min_size=120, max_size=120),
    st.integers(2, 16),
)
def test_ranges_hold_every_step_once(gaps: list[int], values: list[float], most: int) -> None:
    steps = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    given_values = dict(zip(steps, values, strict=False))
    curves = filled(given_values, most)
    assert len(curves.steps) <= most
    before = 0
    for place, last in enumerate(curves.steps):
        within = [value for step, value in given_values.items() if before < step <= last]
        assert within
        assert curves.least("loss")[place] == rounded(min(within))
        assert curves.greatest("loss")[place] == rounded(max(within))
        assert curves.means("loss")[place] == pytest.approx(sum(within) / len(within), rel=1e-5, abs=1e-9)
        before = last
    assert before == steps[-1]


def test_a_rate_is_that_of_the_whole_range() -> None:
    curves = Curves(most=2)
    for step in range(1, 5):  # two ranges: 1 to 3 within the first width of four, then 4
        curves.add(step, {"samples": 10, "seconds": step})
    assert list(curves.steps) == [3, 4]
    assert curves.ratio("samples", "seconds") == [rounded(30 / 6), rounded(10 / 4)]
    assert curves.ratio("samples", "nothing") == [None, None]


def test_what_is_no_number_leaves_a_gap() -> None:
    curves = Curves()
    curves.add(1, {"loss": 1.0, "late": math.nan})
    curves.add(2, {"loss": math.nan})
    curves.add(3, {"loss": math.inf, "late": 2.0})
    assert curves.means("loss") == [1.0, None, None]
    assert curves.means("late") == [None, None, 2.0]


def test_sums_that_reach_infinity_are_still_numbers() -> None:
    curves = Curves(most=2)
    for step in range(1, 9):
        curves.add(step, {"loss": 1.7e308})
    assert all(math.isfinite(value) for value in curves.means("loss") if value is not None)


def test_changes_are_kept_and_end_at_the_last_step() -> None:
    changes = Changes()
    for step, value in [(1, 16), (2, 16), (3, 24), (4, 24), (9, 24)]:
        changes.add(step, value)
    assert changes.points() == ([1, 3, 9], [16, 24, 24])
    for step in range(10, 20_000):
        changes.add(step, step)
    steps, values = changes.points()
    assert len(steps) <= 1002
    assert (steps[0], steps[-1], values[-1]) == (1, 19_999, 19_999)


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, 1), (0.123456789, 0.123457), (12_884_901_888, 12_884_901_888), (3e20, 3e20)]
)
def test_numbers_have_six_digits(value: float, shown: float) -> None:
    assert rounded(value) == shown
