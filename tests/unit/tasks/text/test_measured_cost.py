"""A cost corrected by measured peaks."""

import numpy as np
import pytest

from trainauto.tasks.text.costs import RelativeCost
from trainauto.tasks.text.measured_cost import MeasuredCost

NONE = np.zeros(1, np.int64)


def after(*ratios: float) -> MeasuredCost:
    cost = MeasuredCost(RelativeCost())
    for ratio in ratios:
        cost.observe(1_000_000, round(1_000_000 * ratio))
    return cost


def test_nothing_measured_changes_nothing() -> None:
    assert after().ratio == 1
    assert after().cost(3, 50, NONE) == RelativeCost().cost(3, 50, NONE)


def test_observations_raise_and_lower_the_ratio_and_settle_the_doubt() -> None:
    assert after(1.3).ratio == pytest.approx(1.3, rel=0.05)
    assert after(0.7).ratio == pytest.approx(0.7, rel=0.05)
    assert after(*[1.3] * 20).ratio == pytest.approx(1.3, rel=1e-3)
    assert after(*[1.3] * 20).upper_margin(0.01) < after(1.3).upper_margin(0.01) < after().upper_margin(0.01)
    corrected = after(*[2.0] * 50).cost(3, np.array([50, 60]), NONE)
    assert corrected == pytest.approx(2 * RelativeCost().cost(3, np.array([50, 60]), NONE), rel=5e-3)


def test_batches_that_differ_among_themselves_widen_the_margin() -> None:
    steady, scattered = after(*[1.2] * 12), after(*[0.9, 1.5] * 6)
    assert scattered.margin(0.025) > 1.5 > 1.3 > steady.margin(0.025) > 1
    assert steady.margin(0.5) == 1


def test_quantiles_hold_for_what_is_drawn() -> None:
    draws = np.exp(np.random.default_rng(0).normal(0.2, 0.1, (400, 21)))
    passed = 0
    for row in draws:
        cost = after(*row[:20].tolist())
        passed += row[20] > cost.ratio * cost.upper_margin(0.1)
    assert 10 < passed <= 48  # 40 expected; tails of Student's t are wider


def test_what_cannot_be_a_ratio_is_left_out() -> None:
    cost = after()
    cost.observe(0, 5)
    cost.observe(5, 0)
    assert cost.ratio == 1
    with pytest.raises(ValueError, match="probability"):
        cost.margin(1.0)
