"""When SpikeGuard goes back, and when it lets a run be."""

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from trainauto.automations import AUTOMATIONS
from trainauto.automations.spike_guard import SpikeGuard
from trainauto.core.decisions import Decision, GiveUp, GoBack, RunFacts
from trainauto.core.plan import Axis, BatchShape, Plan
from trainauto.core.records import StepRecord

AXES = (Axis("lq_size", "px", 8, 64, 8, power=2), Axis("batch_size", "samples", 1, 4096))


def record(step: int, loss: float, samples: int = 8, size: int = 16, **changes: Any) -> StepRecord:
    plan = Plan.of(batch_size=samples, lq_size=size)
    fields: dict[str, Any] = {
        "losses": {"l1": loss},
        "learning_rates": {"g": 1e-3},
        "grad_norms": {"g": 1.0},
        "data_seconds": 0.0,
        "step_seconds": 0.1,
        **changes,
    }
    return StepRecord(step, plan, plan, BatchShape(samples, size), 0, **fields)


def guard(rollbacks: int = 0, **arguments: Any) -> SpikeGuard:
    made = SpikeGuard(**arguments)
    made.on_run_start(RunFacts(AXES, Plan.of(batch_size=8, lq_size=16), rollbacks=(0,) * rollbacks))
    return made


def first_decision(made: SpikeGuard, records: Iterable[StepRecord]) -> tuple[int, Decision] | None:
    for one in records:
        if (decision := made.on_step_end(one)) is not None:
            return one.step, decision
    return None


def noisy(steps: int, loss: Callable[[int], float], scatter: float, seed: int = 0) -> list[StepRecord]:
    draw = random.Random(seed)
    return [record(step, loss(step) * math.exp(draw.gauss(0, scatter))) for step in range(1, steps + 1)]


def test_it_is_known_by_its_name() -> None:
    assert AUTOMATIONS.get("spikeguard") is SpikeGuard


@pytest.mark.parametrize("scatter", [0.0, 0.02, 0.3])
def test_a_leap_is_seen_within_three_steps(scatter: float) -> None:
    """The checkpoint must be of two steps before: the update after the last good loss may be what did it."""
    usual = noisy(300, lambda step: 1 + math.exp(-step / 50), scatter)
    assert first_decision(guard(), usual) is None
    made = guard()
    first_decision(made, usual)
    step, decision = first_decision(made, [record(301 + after, 60.0) for after in range(9)]) or (0, None)
    assert step == 303
    assert isinstance(decision, GoBack)
    assert decision.good_until == 299
    assert "the loss spikes: 60, 60, 60" in decision.reason


def test_steps_without_a_pass_are_no_leaps() -> None:
    """A discriminator trains alone in every other step: that loss has fewer terms."""
    usual = noisy(300, lambda step: 1.0, 0.02)
    alone = [record(301 + after, 60.0, left_out=("g",)) for after in range(9)]
    assert first_decision(guard(), [*usual, *alone]) is None


@pytest.mark.parametrize("seed", range(20))
def test_noise_with_heavy_tails_is_none(seed: int) -> None:
    """Single batches fifty times as high, one of a hundred, and scatter by a factor of two."""
    draw = random.Random(seed)
    usual = noisy(2000, lambda step: 0.1 + math.exp(-step / 300), 0.7, seed)
    spiky = [record(one.step, one.losses["l1"] * (50 if draw.random() < 0.01 else 1)) for one in usual]
    assert first_decision(guard(), spiky) is None


@pytest.mark.parametrize(("before", "after"), [(1024, 4), (4, 1024), (8, 16)])
def test_batches_that_change_are_no_leap(before: int, after: int) -> None:
    draw = random.Random(1)
    steps = [
        record(step, 1 + draw.gauss(0, 0.8) / math.sqrt(samples), samples)
        for step, samples in enumerate([before] * 400 + [after] * 400, 1)
    ]
    assert first_decision(guard(), steps) is None


def two_kinds(step: int, draw: random.Random) -> StepRecord:
    """Batches of one task each, the rarer one with losses ten times as high."""
    return record(step, (0.5 if draw.random() < 0.6 else 5.0) * math.exp(draw.gauss(0, 0.1)))


def mostly_zero(step: int, draw: random.Random) -> StepRecord:
    """A hinge that most batches do not touch."""
    return record(step, max(0.0, draw.gauss(-0.05, 0.2)))


def zero_at_first(step: int, draw: random.Random) -> StepRecord:
    return record(step, 0.0 if step < 300 else abs(draw.gauss(0, 1e-6)))


def far_tails(step: int, draw: random.Random) -> StepRecord:
    return record(step, draw.paretovariate(1.2))


def by_tokens(step: int, draw: random.Random) -> StepRecord:
    """Many short texts, which are dear, or a few long ones."""
    samples = int(4 * 64 ** draw.random())
    return record(step, 1.5 + 1.5 * samples / 256 + draw.gauss(0, 0.3 / math.sqrt(samples)), samples)


def warm_restarts(step: int, draw: random.Random) -> StepRecord:
    """A cosine that starts again every 500 steps, and a loss that goes with it to ten times its value."""
    rate = (1 + math.cos(math.pi * (step % 500) / 500)) / 2
    loss = (0.05 + 0.45 * rate * (1 - math.exp(-(step % 500 + 1) / 10))) * math.exp(draw.gauss(0, 0.08))
    return record(step, loss, learning_rates={"g": 1e-3 * rate + 1e-6})


@pytest.mark.parametrize("kind", [two_kinds, mostly_zero, zero_at_first, far_tails, by_tokens, warm_restarts])
@pytest.mark.parametrize("seed", range(2))
def test_healthy_runs_whose_losses_are_far_from_normal(
    kind: Callable[[int, random.Random], StepRecord], seed: int
) -> None:
    draw = random.Random(seed)
    made = guard()
    assert first_decision(made, (kind(step, draw) for step in range(1, 1900))) is None
    high = [record(step, 1e3, learning_rates={}) for step in range(1900, 1903)]  # a leap is seen all the same
    assert isinstance((first_decision(made, high) or (0, None))[1], GoBack)


def test_other_crops_and_other_terms_are_compared_with_themselves_only() -> None:
    steps = [record(step, 1.0 if step < 300 else 4.0, size=16 if step < 300 else 64) for step in range(1, 600)]
    assert first_decision(guard(), steps) is None
    steps = [record(step, 1.0, losses={"l1": 1.0} if step < 300 else {"l1": 1.0, "gan": 9.0}) for step in range(1, 600)]
    assert first_decision(guard(), steps) is None


def test_losses_around_zero_and_below() -> None:
    draw = random.Random(2)
    steps = [record(step, draw.gauss(-0.01, 0.1)) for step in range(1, 1000)]
    assert first_decision(guard(), steps) is None
    made = guard()
    first_decision(made, steps)
    assert first_decision(made, [record(1000 + after, 5.0) for after in range(3)]) is not None


@pytest.mark.parametrize(
    "spoilt", [{"losses": {"l1": math.nan}}, {"losses": {"l1": math.inf}}, {"non_finite": ("g",), "grad_norms": {}}]
)
def test_what_is_no_number_is_left_out_so_often_and_then_undone(spoilt: dict[str, Any]) -> None:
    made = guard(skip_nonfinite=2)
    steps = [record(step, 1.0, **(spoilt if step in (5, 6, 9, 12, 13, 14) else {})) for step in range(1, 20)]
    step, decision = first_decision(made, steps) or (0, None)
    assert step == 14
    assert isinstance(decision, GoBack)
    assert decision.good_until == 10
    assert "for 3 steps, up to step 14" in decision.reason


def test_gradients_of_float16_that_overflow_are_the_scalers() -> None:
    steps = [record(step, 1.0, skipped=("g",), grad_norms={"g": math.inf}) for step in range(1, 9)]
    assert first_decision(guard(), steps) is None


def test_after_so_many_rollbacks_the_run_is_given_up() -> None:
    spoilt = [record(5, math.nan)]
    assert isinstance((first_decision(guard(2), spoilt) or (0, None))[1], GoBack)
    _, decision = first_decision(guard(3), spoilt) or (0, None)
    assert isinstance(decision, GiveUp)
    assert decision.reason.endswith("after 3 rollbacks within 10000 steps")
    assert isinstance((first_decision(guard(max_rollbacks=0), spoilt) or (0, None))[1], GiveUp)


def test_arguments() -> None:
    with pytest.raises(ValueError, match="max_rollbacks must be 0 or more, got -1"):
        SpikeGuard(max_rollbacks=-1)
    with pytest.raises(ValueError, match="skip_nonfinite must be 0 steps or more"):
        SpikeGuard(skip_nonfinite=-1)


def test_rollbacks_of_long_ago_count_no_more() -> None:
    made = guard(max_rollbacks=2)
    made.on_run_start(RunFacts(AXES, Plan.of(batch_size=8, lq_size=16), rollbacks=(100, 30_000)))
    assert isinstance((first_decision(made, [record(30_500, math.nan)]) or (0, None))[1], GoBack)
    made.on_run_start(RunFacts(AXES, Plan.of(batch_size=8, lq_size=16), rollbacks=(29_000, 30_000)))
    assert isinstance((first_decision(made, [record(30_500, math.nan)]) or (0, None))[1], GiveUp)


def test_a_term_that_comes_now_and_then_hides_no_leap() -> None:
    """A penalty in every sixteenth step: each kind of step is compared with its own."""

    def losses(step: int, usual: float) -> dict[str, float]:
        return {"l1": usual} | ({"penalty": 20.0} if step % 16 == 0 else {})

    draw = random.Random(3)
    steps = [record(step, 1.0, losses=losses(step, 1 + draw.gauss(0, 0.05))) for step in range(1, 2000)]
    made = guard()
    assert first_decision(made, steps) is None
    step, decision = first_decision(made, [record(n, 1.0, losses=losses(n, 30.0)) for n in range(2001, 2010)]) or (
        0,
        None,
    )
    assert step == 2003
    assert isinstance(decision, GoBack)


def test_what_explodes_before_anything_is_known_is_a_leap() -> None:
    """A rate that is far too high from the first step, or from a mistyped milestone on."""
    first = [record(step, 0.05 * 20.0**step) for step in range(1, 20)]
    step, decision = first_decision(guard(), first) or (0, None)
    assert step <= 9
    assert isinstance(decision, GoBack)
    assert "was the largest" in decision.reason
    made = guard()
    assert first_decision(made, [record(step, 0.0167) for step in range(1, 330)]) is None
    late = [record(step, 10.0 ** (step - 331), learning_rates={"g": 3.0}) for step in range(330, 350)]
    assert isinstance((first_decision(made, late) or (0, None))[1], GoBack)
    small = [record(step, 1e-12 if step < 9 else 0.3) for step in range(1, 400)]
    assert first_decision(guard(), small) is None, "a loss that begins at nothing"


@pytest.mark.parametrize(("told", "leaps"), [(True, False), (False, True)])
def test_a_loss_that_begins_to_count_is_no_leap(told: bool, leaps: bool) -> None:
    """What a scheduled loss weighs stands among the terms that are told."""
    records = []
    for one in noisy(400, lambda step: 1.0 if step <= 300 else 6.0, 0.05):
        weight = {"gan_weight": 0.0 if one.step <= 300 else 0.1}
        changes = {"losses": {**one.losses, **weight}, "told": ("gan_weight",)}
        records.append(replace(one, **changes) if told else one)
    assert (first_decision(guard(), records) is not None) == leaps
