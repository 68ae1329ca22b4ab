import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tasks.multitask.monitoring.made_batches import a_batch
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics
from trainauto.tasks.multitask.monitoring.batch_sums import NORM, BatchSums, Spread

FIGURES = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0.1, 50)), min_size=1, max_size=30)


def spread_of(figures: Sequence[tuple[float, float]]) -> Spread:
    spread = Spread()
    for value, weight in figures:
        spread.add(value, weight)
    return spread


def sums_of(batches: Sequence[BatchMetrics]) -> BatchSums:
    sums = BatchSums()
    for batch in batches:
        sums.add(batch)
    return sums


@given(FIGURES)
def test_a_spread_is_what_all_figures_at_once_give(figures: list[tuple[float, float]]) -> None:
    values, weights = np.array(figures).T
    mean = np.average(values, weights=weights)
    deviation = math.sqrt(np.average((values - mean) ** 2, weights=weights))
    expected = {"min_mb": values.min(), "max_mb": values.max(), "mean_mb": mean, "std_mb": deviation}
    assert spread_of(figures).to_dict("_mb") == pytest.approx(expected, rel=1e-6, abs=1e-4)


def test_a_spread_of_nothing() -> None:
    spread = spread_of([(5.0, 0.0)])
    assert spread.to_dict() == {"min": None, "max": None, "mean": None, "std": None}


def test_an_epoch_is_made_as_its_fields_say() -> None:
    """A57: each mean by its definition, of batches of several sizes."""
    batches = [
        a_batch(0, batch_size=1, task_types=["T1"], per_task_samples=None, loss=4.0, per_task_loss={"T1": 4.0}),
        a_batch(
            1,
            batch_size=3,
            per_task_samples={"T1": 1, "T2": 2},
            loss=2.0,
            per_task_loss={"T1": 1.0, "T2": 2.5},
            memory_allocated_mb=300.0,
            throughput_samples_per_sec=10.0,
            is_oom_recovery=True,
        ),
        a_batch(
            2,
            batch_size=4,
            per_task_samples={"T1": 0, "T2": 4},
            loss=1.0,
            per_task_loss={"T2": 1.0},
            memory_allocated_mb=None,
        ),
    ]
    epoch = sums_of(batches).as_epoch(5, 60.0, 100, 20)
    assert (epoch.epoch, epoch.total_samples, epoch.total_batches, epoch.epoch_time_seconds) == (5, 100, 20, 60.0)
    assert (epoch.recorded_batches, epoch.recorded_samples) == (3, 8)
    assert epoch.avg_loss == pytest.approx((4 * 1 + 2 * 3 + 1 * 4) / 8)
    assert epoch.per_task_avg_loss == pytest.approx({"T1": (4 + 1) / 2, "T2": (2.5 * 2 + 1 * 4) / 6})
    assert epoch.per_task_samples == {"T1": 2, "T2": 6}
    assert (epoch.peak_memory_mb, epoch.avg_memory_mb) == (300, 200)
    assert epoch.avg_throughput_samples_per_sec == pytest.approx(8 / (1 / 40 + 3 / 10 + 4 / 40))
    assert epoch.oom_recoveries == 1


def test_the_public_rules_of_an_epoch_give_other_figures() -> None:
    """A57: the public code took means over batches whatever they held, and counted a task once a batch."""

    def public_mean(losses: Sequence[float]) -> float:
        return sum(losses) / len(losses)

    def public_samples(batches: Sequence[BatchMetrics]) -> int:
        return sum("T1" in batch.task_types for batch in batches)

    batches = [
        a_batch(0, batch_size=2, task_types=["T1"], per_task_samples={"T1": 2}, loss=4.0, per_task_loss={"T1": 4.0}),
        a_batch(1, batch_size=30, task_types=["T1"], per_task_samples={"T1": 30}, loss=1.0, per_task_loss={"T1": 1.0}),
    ]
    epoch = sums_of(batches).as_epoch(0, 1.0)
    over_samples = (2 * 4.0 + 30 * 1.0) / 32
    assert epoch.avg_loss == epoch.per_task_avg_loss["T1"] == pytest.approx(over_samples)
    assert public_mean([batch.loss for batch in batches]) != pytest.approx(over_samples, rel=0.5)
    assert epoch.per_task_samples["T1"] == 32
    assert public_samples(batches) == 2


def test_speed_where_no_batch_says_how_long_it_took() -> None:
    untimed = [a_batch(0, throughput_samples_per_sec=None), a_batch(1, throughput_samples_per_sec=0.0)]
    assert sums_of(untimed).as_epoch(0, 20.0, 160, 10).avg_throughput_samples_per_sec == 8
    assert sums_of(untimed).as_epoch(0, 0.0, 160, 10).avg_throughput_samples_per_sec is None


def test_an_epoch_without_batches_has_no_means() -> None:
    epoch = BatchSums().as_epoch(0, 1.0)
    assert (epoch.avg_loss, epoch.peak_memory_mb, epoch.avg_memory_mb, epoch.per_task_avg_loss) == (
        None,
        None,
        None,
        {},
    )


def test_a_norm_that_overflowed_counts_in_no_mean_and_a_loss_does() -> None:
    sums = sums_of([a_batch(0, gradient_norm=math.inf, loss=math.nan), a_batch(1, gradient_norm=3.0)])
    assert sums.of(NORM).mean == 3
    assert math.isnan(sums.as_epoch(0, 1.0).avg_loss or 0)
