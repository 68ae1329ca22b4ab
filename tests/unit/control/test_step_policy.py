"""Small steps towards a memory target: properties of a pure function (E11)."""

from hypothesis import given
from hypothesis import strategies as st

from trainauto.control.step_policy import (
    Measured,
    PolicyDecision,
    StepInput,
    decide,
    shrunk_after_oom,
    with_smaller_passes,
)
from trainauto.core.plan import BATCH_SIZE, TOKENS, Axis, Plan, work

AXES = (Axis("lq_size", "px", 16, 128, 4, power=2), Axis("batch_size", "samples", 2, 32))
LIMIT = 1000 * 2**20


def peak_of(plan: Plan, constant: float = 40e6, per_pixel: float = 3000.0) -> int:
    return int(constant + per_pixel * work(plan, AXES))


def situation(plan: Plan, peak: int | None = None, **changes: object) -> StepInput:
    measured = peak_of(plan) if peak is None else peak
    facts: dict[str, object] = {
        "plan": plan,
        "peak_bytes": measured,
        "limit_bytes": LIMIT,
        "target": 0.85,
        "margin": 0.05,
        "axes": AXES,
        "configured_batch": 4,
        "measured": Measured({plan: measured}, lambda plan: work(plan, AXES)),
    }
    return StepInput(**{**facts, **changes})  # type: ignore[arg-type]


plans = st.builds(lambda b, s: Plan.of(batch_size=b, lq_size=4 * s), st.integers(2, 32), st.integers(4, 32))


@given(plans, st.floats(0.01, 1.4))
def test_what_a_decision_may_do(plan: Plan, usage: float) -> None:
    """Fault 6: above target it shrinks, always. Fault 9: and never below a minimum (C39)."""
    peak = int(usage * LIMIT)
    found = decide(situation(plan, peak))
    assert all(axis.admits(found.plan[axis.name]) for axis in AXES)
    assert found.reason
    if usage > 0.85:
        assert work(found.plan, AXES) <= work(plan, AXES)
        assert found.plan["lq_size"] == plan["lq_size"] or plan.batch_size == 2
        assert found.plan != plan or (plan.batch_size, plan["lq_size"]) == (2, 16)
    elif usage >= 0.80:
        assert found.plan == plan
    else:
        assert work(found.plan, AXES) >= work(plan, AXES)
        grown = [axis.name for axis in AXES if found.plan[axis.name] > plan[axis.name]]
        assert len(grown) <= 1
        if found.plan != plan:
            assert found.expected_bytes is not None
            assert found.expected_bytes <= 0.85 * LIMIT
            if plan.batch_size < 4:
                assert grown == ["batch_size"]
                assert found.plan.batch_size <= 4


def test_crop_grows_before_the_batch_and_the_batch_when_the_crop_cannot() -> None:
    """Fault 8: when the crop was blocked, growth of the batch was never tried. C02, C03, E20 (steps of 2 to 8)."""
    small = Plan.of(batch_size=4, lq_size=32)
    assert decide(situation(small)).plan["lq_size"] == 40
    at_bound = Plan.of(batch_size=4, lq_size=128)
    peak = int(0.3 * LIMIT)
    assert decide(situation(at_bound, peak)).plan == Plan.of(batch_size=11, lq_size=128)  # 12 might pass the target
    # The crop is blocked by a plan that failed.
    failed = Plan.of(batch_size=4, lq_size=36)
    found = decide(situation(small, int(0.3 * LIMIT), blocked=(failed,)))
    assert found.plan["lq_size"] == 32
    assert found.plan.batch_size > 4


def test_staying_below_the_band_says_why_with_figures() -> None:
    """C40: whoever wonders why nothing changes is told."""
    plan = Plan.of(batch_size=32, lq_size=128)
    found = decide(situation(plan, int(0.5 * LIMIT)))
    assert found.plan == plan
    assert "lq_size is at its bound 128" in found.reason
    assert "batch_size is at its bound 32" in found.reason
    tight = decide(situation(Plan.of(batch_size=4, lq_size=64), int(0.79 * LIMIT)))
    assert "is expected to peak at" in tight.reason
    assert "above the target 85%" in tight.reason


def test_pressure_takes_the_batch_first_then_the_crop() -> None:
    """Fault 9: decreases ignored the minimum. C04: the crop shrinks only at the smallest batch."""
    over = int(0.95 * LIMIT)
    assert decide(situation(Plan.of(batch_size=10, lq_size=64), over)).plan == Plan.of(batch_size=8, lq_size=64)
    assert decide(situation(Plan.of(batch_size=2, lq_size=64), over)).plan == Plan.of(batch_size=2, lq_size=60)
    floor = decide(situation(Plan.of(batch_size=2, lq_size=16), over))
    assert floor == PolicyDecision(Plan.of(batch_size=2, lq_size=16), floor.reason)
    assert "the plan is at its minimum" in floor.reason


def test_growth_can_be_forbidden_protection_cannot() -> None:
    plan = Plan.of(batch_size=8, lq_size=64)
    assert decide(situation(plan, int(0.2 * LIMIT), may_grow=False)).plan == plan
    assert decide(situation(plan, int(0.9 * LIMIT), may_grow=False)).plan != plan


@given(plans)
def test_out_of_memory_shrinks_both_axes_and_ends_at_the_floors(plan: Plan) -> None:
    seen = 0
    current: Plan | None = plan
    while current is not None:
        smaller = shrunk_after_oom(current, AXES)
        if smaller is not None:
            assert all(axis.admits(smaller[axis.name]) for axis in AXES)
            assert all(smaller[a.name] < current[a.name] or current[a.name] == a.minimum for a in AXES)
        current = smaller
        seen += 1
        assert seen < 60


@given(st.lists(plans, min_size=2, max_size=8, unique=True), plans)
def test_expectation_follows_an_affine_memory(known: list[Plan], asked: Plan) -> None:
    measured = Measured({plan: peak_of(plan) for plan in known}, lambda plan: work(plan, AXES))
    expected = measured.expected_bytes(asked)
    if len({work(plan, AXES) for plan in known}) > 1:
        assert abs(expected - peak_of(asked)) <= 0.01 * peak_of(asked) + 4096
    elif work(asked, AXES) > work(known[0], AXES):
        assert expected >= peak_of(asked) - 4096  # proportional is the cautious guess upwards


def test_smaller_passes_leave_a_step_its_samples() -> None:
    """To one sample a pass, then samples shrink; tokens shrink from the beginning."""
    axes, plan, forwards = (Axis("lq_size", "px", 8, 64, 8), Axis(BATCH_SIZE, "samples", 1, 16)), PLAN_OF_16, []
    while plan.forward_batch_size > 1:
        smaller = with_smaller_passes(plan, axes)
        assert smaller is not None
        assert (smaller.batch_size, smaller["lq_size"]) == (16, 32)
        assert smaller.forward_batch_size < plan.forward_batch_size
        plan = smaller
        forwards.append(plan.forward_batch_size)
    assert len(forwards) < 8
    smaller = with_smaller_passes(plan, axes)
    assert smaller is not None
    assert (smaller.batch_size, smaller["lq_size"]) == (16, 24)
    assert with_smaller_passes(Plan.of(batch_size=4, micro_batches=4), axes[1:]) is None
    tokens = with_smaller_passes(Plan.of(tokens=640), (Axis(TOKENS, "tokens", 64, 1280, 64),))
    assert tokens == Plan.of(tokens=448)


PLAN_OF_16 = Plan.of(batch_size=16, lq_size=32)
