"""Predicted costs are bounded; peaks that are measured, and failures, move the bound."""

from hypothesis import given
from hypothesis import strategies as st

from trainauto.tasks.text.measured_bound import MeasuredBound


def test_before_anything_is_measured_the_bound_is_the_predicted_one() -> None:
    assert MeasuredBound(1000).value == 1000


def test_what_is_measured_as_predicted_changes_nothing() -> None:
    bound = MeasuredBound(1000)
    for cost in (1000, 700, 30):
        bound.observe(cost, 5 * cost)
        assert bound.value == 1000


def test_costs_that_take_more_than_at_first_are_bounded_sooner_and_those_that_take_less_later() -> None:
    bound = MeasuredBound(1000)
    bound.observe(1000, 5000)
    bound.observe(900, 9000)  # twice as many bytes for a unit of cost
    assert bound.value == 500
    for _ in range(8):
        bound.observe(400, 800)  # less than half as many
    assert bound.value == 2000  # as the first measured it: no further than twice what ran, or it would be 2,500


def test_what_cannot_be_measured_teaches_nothing() -> None:
    bound = MeasuredBound(1000)
    bound.observe(1000, 0)
    bound.observe(0, 10)
    assert bound.value == 1000


def test_a_target_is_filled_by_what_a_unit_was_measured_to_take() -> None:
    bound = MeasuredBound(1000)
    bound.set_target(10**6)
    assert bound.value == 1000  # nothing is known of bytes yet
    bound.observe(1000, 5000)
    bound.set_target(8000)
    assert bound.value == 1600
    bound.set_target(-5)
    assert bound.value == 0


def test_failures_stay_below() -> None:
    bound = MeasuredBound(1000)
    bound.fail(800)
    assert bound.value == 600
    bound.observe(500, 5000)
    assert bound.value == 600
    bound.fail(600)
    assert bound.value == 450
    bound.set_target(10**9)
    assert bound.value == 450


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**9)), min_size=1, max_size=20))
def test_no_batch_is_planned_above_what_the_first_took_by_the_recent_measurements(seen: list[tuple[int, int]]) -> None:
    bound = MeasuredBound(seen[0][0])
    for cost, used in seen:
        bound.observe(cost, used)
        assert bound.value <= 2 * max(c for c, _ in seen)
    worst = max(used / cost for cost, used in seen[-8:])
    assert bound.value * worst <= seen[0][1] * 1.000001
