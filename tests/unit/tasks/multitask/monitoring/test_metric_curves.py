import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tasks.multitask.monitoring.made_batches import a_batch, a_long_run
from trainauto.tasks.multitask.monitoring.batch_sums import LOSS
from trainauto.tasks.multitask.monitoring.metric_curves import MetricCurves, relative_losses, smoothed


def curves_of(batches: int, most_points: int) -> MetricCurves:
    curves = MetricCurves(most_points)
    for number in range(batches):
        curves.add(number, a_batch(number))
    return curves


@given(st.integers(1, 150), st.sampled_from([2, 4, 10]))
def test_points_are_bounded_and_hold_each_batch_once(batches: int, most_points: int) -> None:
    curves = curves_of(batches, most_points)
    sizes = [point.sums.batches for point in curves.points]
    assert len(sizes) <= most_points
    assert sum(sizes) == batches
    assert set(sizes[:-1]) <= {curves.batches_a_point}
    assert [point.position + 1 for point in curves.points] == [sum(sizes[: end + 1]) for end in range(len(sizes))]


def test_few_batches_have_a_point_each() -> None:
    curves = curves_of(10, 10)
    assert curves.batches_a_point == 1
    assert [point.sums.of(LOSS).mean for point in curves.points] == [a_batch(number).loss for number in range(10)]


def test_figures_of_a_point() -> None:
    (point,) = curves_of(1, 4).points
    assert point.sums.figures() == pytest.approx(
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
    curves = MetricCurves()
    curves.add(0, a_batch(0, memory_allocated_mb=None, gradient_norm=None, learning_rate=None, per_task_loss={}))
    tags = curves.points[0].sums.figures()
    assert not {"memory/allocated_mib", "gradient_norm", "learning_rate", "loss_by_task/T1"} & tags.keys()


def test_losses_of_other_scales_are_compared_with_their_own_beginning() -> None:
    curves = MetricCurves()
    for number, batch in enumerate(a_long_run(200)):
        curves.add(number, batch)
    relative = relative_losses(curves.points)
    assert relative["T1"] == pytest.approx(relative["T3"], rel=0.05)  # 2.3 and 90 at the start, which fall alike
    assert relative["T1"] < 0.2 < relative["T2"] < 0.7


def test_nothing_to_compare() -> None:
    assert relative_losses(curves_of(1, 4).points) == {}
    curves = MetricCurves(4)
    for number, losses in enumerate(({}, {"T1": 2.0})):
        curves.add(number, a_batch(number, per_task_loss=losses))
    assert relative_losses(curves.points) == {}


def test_running_means_are_near_what_they_follow() -> None:
    generator = random.Random(0)
    noisy = [5 + generator.gauss(0, 1) for _ in range(500)]
    means = smoothed([*noisy, math.nan], 25)
    assert means[0] == noisy[0]
    assert np.std(means[50:]) < 0.4 * np.std(noisy)
    assert means[-1] == means[-2]
    assert math.isnan(smoothed([math.nan, 1.0], 5)[0])
