import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tasks.multitask.monitoring.made_batches import a_batch, a_long_run
from trainauto.tasks.multitask.monitoring import batch_sums as tags
from trainauto.tasks.multitask.monitoring.batch_sums import BatchSums
from trainauto.tasks.multitask.monitoring.metric_curves import MetricCurves, smoothed


def curves_of(batches: int, most_points: int) -> MetricCurves:
    curves = MetricCurves(most_points)
    for number in range(batches):
        curves.add(number, a_batch(number))
    return curves


def test_few_batches_have_a_point_each() -> None:
    curves = curves_of(10, 10)
    assert curves.batches_a_point == 1
    assert curves.of(tags.LOSS) == pytest.approx([a_batch(number).loss for number in range(10)], rel=1e-5)


@given(st.integers(1, 150), st.sampled_from([2, 4, 10]))
def test_points_are_what_their_batches_come_to(batches: int, most_points: int) -> None:
    """The figures of the same batches in TensorBoard."""
    run = a_long_run(batches)
    curves = MetricCurves(most_points)
    for number, batch in enumerate(run):
        curves.add(number, batch)
    assert len(curves.positions) <= most_points
    begin = 0
    for point, position in enumerate(curves.positions):
        sums = BatchSums()
        for batch in run[begin : position + 1]:
            sums.add(batch)
        shown = {tag: curves.of(tag)[point] for tag in sums.figures()}
        assert shown == pytest.approx(sums.figures(), rel=1e-5)
        begin = position + 1
    assert begin == batches


def test_figures_of_a_point() -> None:
    sums = BatchSums()
    sums.add(a_batch(0))
    assert sums.figures() == pytest.approx(
        {
            "loss/all_tasks": 1.0,
            "loss_by_task/T1": 2.0,
            "loss_by_task/T2": 0.5,
            "share_of_samples/T1": 0.75,
            "share_of_samples/T2": 0.25,
            "memory/allocated_mib": 100.0,
            "memory/reserved_mib": 200.0,
            "batch/samples": 8.0,
            "speed/samples_per_s": 40.0,
            "learning_rate": 1e-3,
            "gradient_norm": 1.5,
            "events/oom_recovery": 0.0,
        }
    )


def test_what_nobody_measured_is_on_no_curve() -> None:
    curves, sums = MetricCurves(), BatchSums()
    batch = a_batch(0, memory_allocated_mb=None, gradient_norm=None, learning_rate=None, per_task_loss={})
    curves.add(0, batch)
    sums.add(batch)
    tags_of_nothing = {"memory/allocated_mib", "gradient_norm", "learning_rate", "loss_by_task/T1"}
    assert not tags_of_nothing & sums.figures().keys()
    assert all(math.isnan(curves.of(tag)[0]) for tag in tags_of_nothing)


def test_losses_of_other_scales_are_compared_with_their_own_beginning() -> None:
    curves = MetricCurves()
    for number, batch in enumerate(a_long_run(200)):
        curves.add(number, batch)
    relative = curves.relative_losses()
    assert relative["T1"] == pytest.approx(relative["T3"], rel=0.05)  # 2.3 and 90 at the start, which fall alike
    assert relative["T1"] < 0.2 < relative["T2"] < 0.7


def test_nothing_to_compare() -> None:
    assert curves_of(1, 4).relative_losses() == {}
    curves = MetricCurves(4)
    for number, losses in enumerate(({}, {"T1": 2.0})):
        curves.add(number, a_batch(number, per_task_loss=losses))
    assert curves.relative_losses() == {}


def test_running_means_are_near_what_they_follow() -> None:
    generator = random.Random(0)
    noisy = [5 + generator.gauss(0, 1) for _ in range(500)]
    means = smoothed([*noisy, math.nan], 25)
    assert means[0] == noisy[0]
    assert np.std(means[50:]) < 0.4 * np.std(noisy)
    assert means[-1] == means[-2]
    assert math.isnan(smoothed([math.nan, 1.0], 5)[0])
