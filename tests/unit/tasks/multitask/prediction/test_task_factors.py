"""Factors by task, learned from mixed batches."""

import math

import numpy as np
import pytest

from trainauto.tasks.multitask.prediction.task_factors import TaskFactors

SHARED, OWN = 0.03, 0.01


def test_mixtures_teach_about_their_tasks() -> None:
    """Two tasks that take 10 % more and 10 % less: no batch holds only one of them."""
    factors = TaskFactors(0.1, 0.1)
    for share in np.linspace(0.2, 0.8, 20):
        factors.record({"a": share, "b": 1 - share}, 0.1 * share - 0.1 * (1 - share))
    assert factors.mean({"a": 1.0}) == pytest.approx(0.1, abs=0.01)
    assert factors.mean({"b": 1.0}) == pytest.approx(-0.1, abs=0.01)
    assert factors.mean({"a": 0.5, "b": 0.5}) == pytest.approx(0.0, abs=0.01)


def test_what_was_never_measured_follows_the_others_with_more_doubt() -> None:
    factors = TaskFactors(SHARED, OWN)
    before = factors.scale({"new": 1.0})
    for _ in range(10):
        factors.record({"a": 1.0}, 0.06)
    assert 0.03 < factors.mean({"new": 1.0}) < factors.mean({"a": 1.0}) == pytest.approx(0.06, abs=0.01)
    assert factors.scale({"a": 1.0}) < factors.scale({"new": 1.0}) < before


def test_one_peak_that_something_else_took_part_in_moves_little() -> None:
    factors = TaskFactors(SHARED, OWN)
    for record in range(10):
        factors.record({"a": 1.0}, math.log(3.0) if record == 4 else 0.04)
    assert factors.mean({"a": 1.0}) == pytest.approx(0.04, abs=0.01)


def test_a_factor_far_from_what_was_believed_is_learned() -> None:
    factors = TaskFactors(SHARED, OWN)
    for _ in range(10):
        factors.record({"a": 1.0}, math.log(2.0))
    assert factors.mean({"a": 1.0}) == pytest.approx(math.log(2.0), rel=0.05)


def test_later_batches_replace_earlier_ones() -> None:
    factors = TaskFactors(SHARED, OWN)
    for log_ratio in (0.0, 0.2):
        for _ in range(20):
            factors.record({"a": 1.0}, log_ratio)
    assert len(factors.state_dict()["records"]) == 20
    assert factors.mean({"a": 1.0}) == pytest.approx(0.2, abs=0.02)


def test_small_batches_say_less() -> None:
    factors = TaskFactors(SHARED, OWN)
    factors.record({"a": 1.0}, 0.2, scale=0.25)
    assert factors.mean({"a": 1.0}) < 0.02


def test_a_checkpoint_brings_all_back() -> None:
    factors, other = TaskFactors(SHARED, OWN), TaskFactors(SHARED, OWN)
    for number in range(7):
        factors.record({"a": 0.3, "b": 0.7}, 0.01 * number)
    other.load_state_dict(factors.state_dict())
    assert other.mean({"b": 1.0}) == factors.mean({"b": 1.0})
    assert other.scale({"b": 1.0}) == factors.scale({"b": 1.0})
