"""Plans tried for real: which ones, and how long they should take."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.core.plan import BATCH_SIZE, Axis, Plan, shape_of
from trainauto.forecast.benchmark_plans import PlanBenchmark, expected_seconds, spread_plans
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.traced_fit import Piece, Prior

MIB = 1024**2


def axes(most_batch: int = 64, most_px: int = 256, multiple: int = 1) -> tuple[Axis, Axis]:
    return Axis(LQ_SIZE, "px", 8, most_px, multiple, power=2), Axis(BATCH_SIZE, "samples", 1, most_batch)


def model_of(square: float) -> CostModel:
    return CostModel(Prior((Piece("forward", 50.0 * MIB, square),), {}))


@settings(deadline=None, max_examples=25)
@given(st.floats(1e2, 1e5), st.integers(1, 9), st.sampled_from([1, 4, 8]))
def test_plans_that_should_fit_are_spread(square: float, share: int, multiple: int) -> None:
    cost, both = model_of(square), axes(multiple=multiple)
    limit = cost.predict(shape_of(Plan.of(batch_size=64, lq_size=256)), UPPER) * share // 10
    plans = spread_plans(cost, both, limit)
    needs = [cost.predict(shape_of(plan)) for plan in plans]
    assert needs == sorted(needs)
    assert len(set(plans)) == len(plans) <= 4
    for plan in plans:
        assert cost.predict(shape_of(plan), UPPER) <= limit
        assert both[0].admits(plan[LQ_SIZE])
        assert both[1].admits(plan.batch_size)
    if plans:  # the largest uses nearly all there is
        one_more = plans[-1].changed(batch_size=min(64, 2 * plans[-1].batch_size), lq_size=2 * plans[-1][LQ_SIZE])
        assert cost.predict(shape_of(one_more), UPPER) > limit


def test_nothing_is_tried_where_nothing_fits() -> None:
    assert spread_plans(model_of(1e4), axes(), 20 * MIB) == []


def test_without_a_limit_plans_go_to_the_bounds() -> None:
    plans = spread_plans(model_of(1e4), axes(), None)
    assert plans[0] == Plan.of(batch_size=1, lq_size=8)
    assert plans[-1] == Plan.of(batch_size=64, lq_size=256)


def test_time_is_foretold_from_two_plans_and_not_from_one() -> None:
    def tried(batch: int, seconds: float, failed: str = "") -> PlanBenchmark:
        return PlanBenchmark(Plan.of(batch_size=batch, lq_size=10), 1, 1, 1, seconds, failed)

    far = Plan.of(batch_size=100, lq_size=10)
    assert expected_seconds(far, [tried(1, 5.0)], axes()) == 0.0
    assert expected_seconds(far, [tried(1, 1.0), tried(10, 2.0)], axes()) == pytest.approx(12.0)
    assert expected_seconds(
        far, [tried(1, 1.0), tried(10, 2.0), tried(20, 0.0, "out of memory")], axes()
    ) == pytest.approx(12.0)
    assert expected_seconds(far, [tried(1, 3.0), tried(10, 2.0)], axes()) == 2.0  # noise
