"""Shapes of rates, and where in a run they act: counted in steps or samples, after a warm-up or over all of it."""

from math import cos, pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.core.errors import InputError
from trainauto.core.records import Progress
from trainauto.optim import SCHEDULES
from trainauto.optim.registry import Shape
from trainauto.optim.schedules import RateSchedule

TOTAL, WARMUP = 20, 4
FALLING = ("linear", "cosine")


def shape(name: str, total: int = TOTAL) -> Shape:
    arguments = {"multistep": {"milestones": [total // 10, total // 2], "total": total, "gamma": 0.1}}
    arguments["cosine_with_restarts"] = {"cycles": 3}
    return SCHEDULES.get(name)(**arguments.get(name, {}))


def by_hand(name: str, done: float) -> float:
    """The factor where ``done`` of the way down lies behind."""
    return {"linear": 1 - done, "cosine": (1 + cos(pi * done)) / 2}[name]


def rates(schedule: RateSchedule) -> list[float]:
    return [schedule.factor(Progress(steps=step)) for step in range(TOTAL)]


def test_cosine_begins_anew_so_many_times() -> None:
    """D10; each of four cycles of five steps is that of a cosine of five, and the end is no beginning."""
    restarts = SCHEDULES.get("cosine_with_restarts")(cycles=4, end_factor=0.2)
    once = [0.2 + 0.8 * (1 + cos(pi * step / 5)) / 2 for step in range(5)]
    assert rates(RateSchedule(restarts, TOTAL)) == pytest.approx(once * 4)
    assert restarts(1.0) == 0.2
    assert rates(RateSchedule(shape("cosine"), TOTAL)) == pytest.approx(
        rates(RateSchedule(SCHEDULES.get("cosine_with_restarts")(), TOTAL))
    )


@given(st.integers(2, 30), st.integers(1, 50), st.floats(0.0, 0.4))
def test_rounding_puts_no_restart_off(cycles: int, length: int, ratio: float) -> None:
    """Cycles of a whole number of steps, after a warm-up whose length is rounded."""
    total = cycles * length
    warmup = ratio * total
    restarts = SCHEDULES.get("cosine_with_restarts")(cycles=cycles)
    schedule = RateSchedule(restarts, total, "samples", warmup, decays_after_warmup=True)
    for cycle in range(1, cycles):
        begin = warmup + (total - warmup) * cycle / cycles
        assert schedule.factor_at(begin) == pytest.approx(1.0)
        assert schedule.factor_at(begin - 0.01) < 0.1


@pytest.mark.parametrize("cycles", [0, -1])
def test_there_is_a_cycle(cycles: int) -> None:
    with pytest.raises(ValueError, match=f"cycles must be 1 or more, got {cycles}"):
        SCHEDULES.get("cosine_with_restarts")(cycles=cycles)


def test_an_unknown_schedule_is_refused() -> None:
    """D13."""
    with pytest.raises(InputError, match=r"(?s)'cosin'.*Did you mean 'cosine'"):
        SCHEDULES.get("cosin")


@pytest.mark.parametrize("name", FALLING)
def test_the_shape_runs_over_all_of_the_run_or_what_the_warm_up_leaves(name: str) -> None:
    """D09, D10: by default the whole rate is never reached; after the warm-up, it is where that ends."""
    warm = [1 / 4, 2 / 4, 3 / 4, 1.0]
    over_all = rates(RateSchedule(shape(name), TOTAL, warmup=WARMUP))
    assert over_all == pytest.approx([(warm[n] if n < 4 else 1) * by_hand(name, n / 20) for n in range(20)])
    assert max(over_all) < 1
    after = rates(RateSchedule(shape(name), TOTAL, warmup=WARMUP, decays_after_warmup=True))
    assert after == pytest.approx([*warm, *(by_hand(name, (n - 4) / 16) for n in range(4, 20))])
    assert after[4] == 1


@pytest.mark.parametrize("name", ["constant", "none"])
def test_a_constant_rate_is_warmed_up_to(name: str) -> None:
    """D11, D12."""
    for decays_after_warmup in (False, True):
        found = RateSchedule(shape(name), TOTAL, warmup=WARMUP, decays_after_warmup=decays_after_warmup)
        assert rates(found) == [0.25, 0.5, 0.75, *[1.0] * 17]


@pytest.mark.parametrize("decays_after_warmup", [False, True])
def test_milestones_are_places_in_the_whole_run(decays_after_warmup: bool) -> None:
    """One at step 2, in the warm-up, and one at step 10."""
    found = rates(RateSchedule(shape("multistep"), TOTAL, "steps", WARMUP, decays_after_warmup))
    assert found == pytest.approx([0.25, 0.5, 0.075, 0.1, *[0.1] * 6, *[0.01] * 10])


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "cosine_with_restarts", "multistep"])
@pytest.mark.parametrize("decays_after_warmup", [False, True])
@pytest.mark.parametrize("samples", [8, 30])
def test_a_run_counted_in_samples_has_the_rates_of_one_in_steps(
    name: str, decays_after_warmup: bool, samples: int
) -> None:
    """D14: steps of a constant number of samples; the first of a warm-up of four is at a quarter of the rate."""
    total = TOTAL * samples
    in_steps = RateSchedule(shape(name), TOTAL, "steps", WARMUP, decays_after_warmup)
    in_samples = RateSchedule(
        shape(name, total), total, "samples", WARMUP * samples, decays_after_warmup, step=float(samples)
    )
    counted = [in_samples.factor(Progress(steps=7, samples=step * samples)) for step in range(TOTAL)]
    assert counted == rates(in_steps)
    assert counted[0] == 0.25


@pytest.mark.parametrize("ratio", [0.0, 0.05, 0.1, 0.2])
def test_a_warm_up_is_a_share_of_the_run(ratio: float) -> None:
    """D14, D15: of 100 steps the first is at 1 of as many as the warm-up has, and never at 0."""
    schedule = RateSchedule(shape("linear", 100), 100, "steps", ratio * 100, decays_after_warmup=True)
    found = [schedule.factor_at(step) for step in range(100)]
    steps = round(ratio * 100)
    assert found[: steps + 1] == pytest.approx([*((n + 1) / steps for n in range(steps)), 1.0])
    assert found[0] > 0
    assert found[99] == pytest.approx(1 / (100 - steps))


@pytest.mark.parametrize("warmup", [20, 50])
def test_a_warm_up_may_be_all_of_the_run(warmup: int) -> None:
    schedule = RateSchedule(shape("linear"), TOTAL, "steps", warmup, decays_after_warmup=True)
    assert rates(schedule) == pytest.approx([(step + 1) / warmup for step in range(TOTAL)])
    assert schedule.factor_at(TOTAL) == 0
