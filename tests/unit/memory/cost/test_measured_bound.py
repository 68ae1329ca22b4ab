"""Predicted costs are bounded; peaks that are measured, and failures, move the bound."""

from hypothesis import given
from hypothesis import strategies as st

from trainauto.core.units import MIB
from trainauto.memory.cost.measured_bound import NOISE_BYTES, MeasuredBound

COSTS = (1000, 900, 950, 700, 990, 30, 1000)


def test_before_anything_is_measured_the_bound_is_the_predicted_one() -> None:
    assert MeasuredBound(1000).value == 1000


def test_batches_that_meet_the_first_ones_peak_change_nothing() -> None:
    """Whatever part of it is constant, and however large the first was, as one that made what is kept may be."""
    for constant, each, first in ((0, MIB, 1.0), (500 * MIB, MIB, 1.0), (0, MIB, 3.0), (10**9, 1, 1.0)):
        bound = MeasuredBound(1000)
        for number, cost in enumerate(COSTS):
            bound.observe(cost, int((constant + each * cost) * (first if number == 0 else 1)))
            assert bound.value == 1000


def test_noise_changes_nothing() -> None:
    """A heap that keeps 16 MiB free hides what fills it: one batch seems to take nothing, the next everything."""
    bound = MeasuredBound(1000)
    for cost, used in ((1000, 40_000), (900, 9 * MIB), (950, 0), (10, NOISE_BYTES), (5, -3)):
        bound.observe(cost, used)
        assert bound.value == 1000


def test_what_takes_more_than_the_first_lowers_the_bound_until_it_does_no_more() -> None:
    bound = MeasuredBound(1000)
    bound.observe(1000, 100 * MIB)
    bound.observe(900, 200 * MIB)
    assert bound.value == 450
    bound.observe(450, 90 * MIB)
    assert bound.value == 500
    bound.observe(500, 20 * MIB)  # of texts that take less again
    assert bound.value == 1000


def test_a_target_is_filled_step_by_step() -> None:
    bound = MeasuredBound(1000, fills=True)
    bound.set_target(1000 * MIB)
    bound.observe(1000, 100 * MIB)
    assert bound.value == 2000
    bound.observe(2000, 400 * MIB)
    assert bound.value == 4000
    bound.observe(4000, 1250 * MIB)
    assert bound.value == 3200
    bound.set_target(-5)
    bound.observe(3200, 1000 * MIB)
    assert bound.value == 0


def test_failures_stay_below() -> None:
    for fills in (False, True):
        bound = MeasuredBound(1000, fills=fills)
        bound.set_target(10**12)
        bound.fail(800)
        assert bound.value == 600
        bound.observe(500, 20 * MIB)
        assert bound.value == 600
        bound.fail(600)
        bound.observe(400, 20 * MIB)
        assert bound.value == 450


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**10)), min_size=1, max_size=20))
def test_a_batch_above_the_target_is_never_planned_again_as_large(seen: list[tuple[int, int]]) -> None:
    bound = MeasuredBound(seen[0][0])
    for cost, used in seen:
        before = bound.value
        bound.observe(cost, used)
        assert bound.value <= seen[0][0]
        if used > 1.02 * max(seen[0][1], NOISE_BYTES):
            assert bound.value <= min(before, cost)
