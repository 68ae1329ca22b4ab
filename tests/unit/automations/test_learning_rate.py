"""Rates that follow the loss: planted plateaus, divergences and spikes, and runs in which nothing is wrong."""

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.unit.automations.watched import SAMPLES, decided, measured, noisy, step_of
from trainauto.automations.learning_rate import IntelligentLearningRateScheduler as Scheduler
from trainauto.core.decisions import RateFactor, RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan


def falling(step: int) -> float:
    """A loss that halves every 500 steps."""
    return float(0.5 ** (step / 500))


def factors(decisions: dict) -> list[tuple[int, float]]:  # type: ignore[type-arg]
    return [(step, one.factor) for step, one in decisions.items() if isinstance(one, RateFactor)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("noise", [0.05, 0.5])
def test_a_run_that_learns_is_left_alone(seed: int, noise: float) -> None:
    assert decided(Scheduler(), noisy(lambda step: 0.1 + falling(step), range(1, 2001), noise=noise, seed=seed)) == {}


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_improvement_under_noise_is_no_plateau(seed: int) -> None:
    """Two hundredths in a thousand steps, under windows that scatter by three."""
    steps = noisy(lambda step: 1 - 0.02 * step / 1000, range(1, 10_001), noise=0.3, seed=seed)
    assert decided(Scheduler(), steps) == {}


def test_a_plateau_halves_the_rate_down_to_its_bound_and_no_further() -> None:
    """Cumulative bounds: three halvings would be an eighth."""
    scheduler = Scheduler(plateau_patience=500, min_lr_factor=0.2)
    decisions = decided(scheduler, noisy(lambda step: max(0.25, falling(step)), range(1, 8001), noise=0.1))
    (first, half), (second, quarter), (third, least) = factors(decisions)
    assert 1500 <= first <= 3000, "the loss stands still from step 1000 on"
    assert second - first >= 500
    assert third - second >= 500
    assert (half, quarter, least) == (0.5, 0.25, 0.2)
    assert decisions[first].reason.startswith("the loss has reached a plateau: 0.2")


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_a_divergence_is_answered_within_two_blocks(noise: float) -> None:
    """A loss that doubles every 20 steps from step 1001 on."""

    def mean(step: int) -> float:
        return (0.2 + falling(step)) * 2 ** max(0.0, (step - 1000) / 20)

    decisions = decided(Scheduler(), noisy(mean, range(1, 1101), noise=noise))
    (step, factor), *later = factors(decisions)
    assert 1020 < step <= 1080
    assert factor == 0.5
    assert "the loss diverges: " in decisions[step].reason
    assert "and its best was 0.4" in decisions[step].reason
    assert all(one < factor for _, one in later)


def test_a_loss_that_diverges_from_the_start_is_answered_too() -> None:
    (step, factor), *_ = factors(decided(Scheduler(), noisy(lambda step: 2 ** (step / 20), range(1, 101), noise=0.05)))
    assert step <= 60
    assert factor == 0.5


def test_spikes_change_nothing() -> None:
    """Single steps of a hundred times the loss, every fifty."""
    steps = noisy(lambda step: (100.0 if step % 50 == 0 else 1.0) * falling(step), range(1, 2001), noise=0.1)
    assert decided(Scheduler(), steps) == {}


def recovering(again: bool) -> dict:  # type: ignore[type-arg]
    """Return what is decided where the loss is ten times as high in steps 1001 to 1100, and again later if so asked."""

    def mean(step: int) -> float:
        is_high = 1000 < step <= 1100 or (again and 2500 < step <= 2600)
        return falling(step) + 0.01 if not is_high else 10 * falling(step)

    return decided(Scheduler(), noisy(mean, range(1, 6001), noise=0.1))


def test_a_halving_for_a_divergence_is_taken_back_once_the_loss_is_back_and_calm() -> None:
    decisions = recovering(again=False)
    (lowered, half), (raised, whole), *rest = factors(decisions)
    assert 1000 < lowered <= 1100
    assert (half, whole) == (0.5, 1.0)
    assert raised - lowered >= 1000, "it stays calm for as long as patience first"
    assert "as low as before it diverged" in decisions[raised].reason
    assert all("not improved" in decisions[step].reason for step, _ in rest)


def test_a_loss_that_stands_far_above_its_best_is_answered_once_more() -> None:
    """Three times the best from step 1001 on."""
    steps = noisy(lambda step: 3.0 if step > 1000 else 1 + falling(step), range(1, 2001), noise=0.1)
    stuck = decided(Scheduler(), steps)
    (first, half), (second, quarter) = factors(stuck)
    assert (half, quarter) == (0.5, 0.25)
    assert second - first >= 100
    assert "has diverged and does not recover: 3" in stuck[second].reason


def test_a_loss_that_rises_further_is_answered_each_time_it_has() -> None:
    """It doubles every hundred steps, from step 1001 on."""
    rising = decided(
        Scheduler(), noisy(lambda step: (1 + falling(step)) * 2 ** max(0, (step - 1000) / 100), range(1, 1601))
    )
    assert [factor for _, factor in factors(rising)] == [0.5, 0.25, 0.125, 0.1]
    assert "has diverged and rises further: " in list(rising.values())[1].reason


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("steps", "noise"), [(500, 0.05), (3000, 0.05), (3000, 0.3), (6000, 0.2)])
def test_a_loss_that_comes_back_slowly_is_given_time(steps: int, noise: float, seed: int) -> None:
    """Three times its best, and back within so many steps."""

    def mean(step: int) -> float:
        away = max(0.0, 1 - (step - 1000) / steps) if step > 1000 else 0.0
        return 1 + falling(step) + 2 * away

    records = noisy(mean, range(1, 1001 + steps), noise=noise, seed=seed)
    assert [factor for _, factor in factors(decided(Scheduler(), records))] in ([0.5], [0.5, 1.0])


def other_data(step: int) -> float:
    """Twice as hard from step 1001 on, and learned from there as slowly as before."""
    since = step if step <= 1000 else step - 900
    return (1 if step <= 1000 else 2) * float(1 + 3 * (since + 50) ** -0.4)


@pytest.mark.parametrize("seed", range(4))
def test_a_lasting_rise_becomes_what_later_losses_are_compared_with(seed: int) -> None:
    """Two halvings at the most, since nobody can tell before; then the run is a healthy one, at another level."""
    scheduler = Scheduler()
    changes = factors(decided(scheduler, noisy(other_data, range(1, 6001), noise=0.2, seed=seed)))
    assert [factor for _, factor in changes] in ([0.5], [0.5, 0.25])
    assert all(step < 5000 for step, _ in changes)
    again = noisy(lambda step: other_data(step) * 2 ** ((step - 6000) / 20), range(6001, 6101), noise=0.2, seed=seed)
    assert "the loss diverges: " in next(iter(decided(scheduler, again).values())).reason


def test_halvings_for_one_divergence_are_taken_back_one_by_one() -> None:
    def mean(step: int) -> float:
        return 3.0 if 1000 < step <= 1600 else 1 + falling(step)

    changes = factors(decided(Scheduler(), noisy(mean, range(1, 5001), noise=0.05)))
    assert [factor for step, factor in changes if step <= 1600] == [0.5, 0.25]
    raised = [(step, factor) for step, factor in changes if step > 1600 and factor > 0.25]
    assert [factor for _, factor in raised[:2]] == [0.5, 1.0]
    assert raised[1][0] - raised[0][0] >= 1000


def test_after_a_second_divergence_a_halving_stays() -> None:
    changes = factors(recovering(again=True))
    assert [factor for step, factor in changes if step <= 2700] == [0.5, 1.0, 0.5]
    assert all(factor <= 0.5 for step, factor in changes if step > 2600)


def test_rates_never_rise_while_the_loss_diverges() -> None:
    def mean(step: int) -> float:
        return 0.5 * 1.004**step

    changes = factors(decided(Scheduler(max_lr_factor=2.0), noisy(mean, range(1, 1001), noise=0.1)))
    assert len(changes) >= 3
    assert [factor for _, factor in changes] == sorted((factor for _, factor in changes), reverse=True)


def test_above_the_schedule_only_where_it_is_allowed_and_all_is_well() -> None:
    steps = noisy(falling, range(1, 4001), noise=0.05)
    assert factors(decided(Scheduler(), steps)) == []
    raised = factors(decided(Scheduler(max_lr_factor=1.15), steps))
    assert [factor for _, factor in raised] == [pytest.approx(1.1), 1.15]
    assert raised[0][0] >= 1000


def test_patience_counts_samples_where_the_batch_grows() -> None:
    """Four times the samples a step, and as much less noise: half of its steps are enough."""
    same = factors(decided(Scheduler(), noisy(lambda _: 1.0, range(1, 4001), noise=0.02)))[0][0]
    scheduler = Scheduler()
    assert decided(scheduler, noisy(lambda _: 1.0, range(1, 101), noise=0.02)) == {}
    grown = noisy(lambda _: 1.0, range(101, 4001), noise=0.01, samples=4 * SAMPLES)
    assert 0.4 < factors(decided(scheduler, grown))[0][0] / same < 0.7


def sized(mean: Callable[[int], float], size: Callable[[int], int], steps: range, noise: float, seed: int) -> list[Any]:
    """Return steps whose noise is that of their samples."""
    draw = random.Random(seed)
    losses = ((step, size(step), draw.gauss(0, noise * (SAMPLES / size(step)) ** 0.5)) for step in steps)
    return [step_of(step, mean(step) * (1 + off), samples=samples) for step, samples, off in losses]


SIZES = {
    "at once": lambda step: SAMPLES if step <= 1000 else 32 * SAMPLES,
    "by and by": lambda step: SAMPLES * 2 ** min(5, step // 300),
    "from the fifth step on": lambda step: SAMPLES if step < 5 else 32 * SAMPLES,
    "it shrinks": lambda step: 64 * SAMPLES if step <= 1000 else SAMPLES,
}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_a_healthy_run_is_left_alone_whatever_its_batches_are(size: Callable[[int], int], seed: int) -> None:
    """Thirty-two times as large, or less; the loss falls by a power of the steps, by 2 % from step 2000 to 4000."""
    steps = sized(lambda step: 1 + 3 * float(step + 50) ** -0.4, size, range(1, 4001), 0.2, seed)
    assert decided(Scheduler(), steps) == {}


@pytest.mark.parametrize("size", [SIZES["at once"], SIZES["it shrinks"]], ids=["grown", "shrunk"])
def test_a_divergence_is_seen_as_soon_whatever_batches_are(size: Callable[[int], int]) -> None:
    """It doubles every 20 steps from step 1501 on."""
    steps = sized(lambda step: (1 + falling(step)) * 2 ** max(0.0, (step - 1500) / 20), size, range(1, 1601), 0.2, 0)
    assert 1520 < factors(decided(Scheduler(), steps))[0][0] <= 1580


def test_what_is_in_force_is_where_it_begins_and_a_halving_raises_nothing() -> None:
    """Another automation, or this one before it was taken out, may have decided it."""
    for factor, then in ((0.3, 0.15), (0.05, None), (2.0, 1.0)):
        scheduler = Scheduler()
        scheduler.on_run_start(RunFacts((), Plan.of(batch_size=8), rate_factor=factor))
        runs_away = noisy(lambda step: 2 ** (step / 20), range(1, 61), noise=0.05)
        changes = [one for _, one in factors(decided(scheduler, runs_away))]
        assert changes[:1] == ([then] if then is not None else [])


def test_a_metric_of_validations_may_be_what_stands_still() -> None:
    scheduler = Scheduler(monitor_metric="val/psnr", plateau_patience=200)
    found = []
    draw = random.Random(0)
    for step in range(1, 2001):
        scheduler.on_step_end(step_of(step, falling(step)))
        if step % 50 == 0:
            psnr = 30 - 10 * 0.5 ** (step / 100) + draw.gauss(0, 0.02)
            found.append((step, scheduler.on_validation_end(measured(step, psnr))))
    changed = [(step, one.factor) for step, one in found if one is not None]
    assert 600 <= changed[0][0] <= 1500, "a hundredth of a dB is left at step 1000"
    assert changed[0][1] == 0.5
    assert "val/psnr has reached a plateau: 29.9" in next(one.reason for _, one in found if one is not None)


def test_another_term_of_the_loss_is_no_divergence() -> None:
    """A discriminator that joins at step 500 adds its loss."""
    scheduler = Scheduler()
    assert decided(scheduler, noisy(falling, range(1, 501), noise=0.05)) == {}
    for step in range(501, 700):
        record = step_of(step, falling(step))
        joined = type(record)(**{**vars(record), "losses": {"l1": falling(step), "gan": 7.0}})
        assert scheduler.on_step_end(joined) is None


def test_a_resume_decides_as_the_run_would_have() -> None:
    steps = noisy(lambda step: max(0.25, falling(step)), range(1, 4001), noise=0.1)
    whole = decided(Scheduler(plateau_patience=300), steps)
    first = Scheduler(plateau_patience=300)
    before = decided(first, steps[:1733])
    second = Scheduler(plateau_patience=300)
    second.load_state_dict(first.state_dict())
    assert {**before, **decided(second, steps[1733:])} == whole
    assert whole


def test_a_state_that_counted_samples_alone_keeps_its_factor_and_waits_anew() -> None:
    earlier = {
        **Scheduler().state_dict(),
        "factor": 0.25,
        "unit": 8,
        "calm": 800,
        "unmeasured": 80,
        "divergence": {"best": None, "away": None, "block": [], "high": 0, "levels": []},
        "plateau": {"values": [1.0, 1.0], "samples": [800, 800]},
    }
    scheduler = Scheduler()
    scheduler.load_state_dict(earlier)
    after = scheduler.state_dict()
    assert (after["factor"], after["calm"], after["plateau"]["values"]) == (0.25, [0, 0], [])


def test_arguments_that_cannot_be() -> None:
    for arguments, words in (
        ({"plateau_patience": 99}, "plateau_patience must be 100 steps"),
        ({"min_lr_factor": 0.0}, "min_lr_factor must be above 0"),
        ({"max_lr_factor": 0.5}, "max_lr_factor must be 1 or more"),
        ({"improvement_threshold": -0.1}, "improvement_threshold must be 0 or more"),
    ):
        with pytest.raises(ValueError, match=words):
            Scheduler(**arguments)  # type: ignore[arg-type]
    facts = RunFacts((), Plan.of(batch_size=1), metrics=("val/psnr", "val/ssim"))
    with pytest.raises(InputError, match="no validation measures 'val/psnrr'"):
        Scheduler(monitor_metric="val/psnrr").check(facts)


def test_a_metric_that_never_comes_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler(monitor_metric="psnrr")
    with caplog.at_level(logging.WARNING):
        for step in (100, 200, 300):
            scheduler.on_validation_end(measured(step, 30.0))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "IntelligentLearningRateScheduler waits for 'psnrr'; what is measured is val/psnr"


def test_a_name_of_no_term_and_no_metric_is_said_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("pnsr", "l1", "psnr", "val_psnr", None):
        scheduler = Scheduler(monitor_metric=name)
        scheduler.check(RunFacts((), step_of(1, 1.0).plan, metrics=("val/psnr",)))
        scheduler.on_step_end(step_of(1, 1.0))
        scheduler.on_step_end(step_of(2, 1.0))
    (line,) = [record.getMessage() for record in caplog.records]
    assert "'pnsr' is no term of the loss, and no validation measures it. Did you mean 'psnr'?" in line


def test_no_number_is_nothing_to_learn_from() -> None:
    """fp16 leaves such steps out."""
    scheduler = Scheduler()
    scheduler.on_step_end(step_of(1, float("inf")))
    scheduler.on_step_end(step_of(2, float("nan")))
    assert decided(scheduler, noisy(falling, range(3, 500))) == {}
    assert torch.isfinite(torch.tensor([loss for loss, _ in scheduler.state_dict()["window"]])).all()


def test_a_watched_term_that_comes_later_is_no_divergence() -> None:
    scheduler = Scheduler(monitor_metric="gan")
    early = [replace(step_of(step, 0.01), losses={"l1": 0.01}) for step in range(1, 1001)]
    late = [replace(step_of(step, 2.0), losses={"l1": 0.01, "gan": 2.0}) for step in range(1001, 1401)]
    assert decided(scheduler, [*early, *late]) == {}


def test_another_metric_after_a_resume_is_compared_with_nothing_of_before() -> None:
    before = Scheduler(monitor_metric="l1", plateau_patience=5000)
    records = [replace(step_of(step, 0.01), losses={"l1": 0.01, "gan": 2.0}) for step in range(1, 1401)]
    assert decided(before, records[:1000]) == {}
    after = Scheduler(plateau_patience=5000)
    after.load_state_dict(before.state_dict())
    assert decided(after, records[1000:]) == {}
