"""Shares of tasks as people write them, and draws that keep to them."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mixed_sets import mixed_set, table_of
from trainauto.core.errors import InputError
from trainauto.tasks.multitask.batches.task_shares import EPOCH, REPLACEMENT, drawn_by_shares, task_shares

TABLE = table_of(mixed_set(200))


def test_shares_are_taken_in_proportion() -> None:
    assert task_shares({"T1": 4, "T2": 3, "T3": 3}, TABLE, EPOCH).tolist() == [0.4, 0.3, 0.3]
    assert task_shares(None, TABLE, EPOCH) is None
    left_out = task_shares({"T1": 1, "T2": 1, "T3": 2, "T9": 5}, TABLE, EPOCH)
    assert left_out.tolist() == [0.25, 0.25, 0.5]


@pytest.mark.parametrize(
    ("distribution", "sampling", "words"),
    [
        (None, "replacment", "no 'replacment' is known\n  Did you mean 'replacement'"),
        (None, REPLACEMENT, "there are none"),
        ({"T1": 1, "T2": 1}, EPOCH, "task 'T3' of the dataset has no share"),
        ({"T1": -1, "T2": 1, "T3": 1}, EPOCH, "share of 'T1' is -1"),
        ({"T1": float("nan"), "T2": 1, "T3": 1}, EPOCH, "share of 'T1' is nan"),
        ({"T1": "40%", "T2": 1, "T3": 1}, EPOCH, "share of 'T1' is '40%'"),
        ({"T1": 0, "T2": 0, "T3": 0}, EPOCH, "no task that the dataset has samples of has a share above 0"),
        ({"T1": 1, "T2": 1, "T3": 1, "T4": 1}, REPLACEMENT, "no sample of task 'T4'"),
    ],
)
def test_what_cannot_be_kept_is_named(distribution: Any, sampling: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        task_shares(distribution, TABLE, sampling)


@given(st.integers(0, 5), st.integers(0, 3))
def test_draws_with_replacement_hold_the_wanted_shares_and_every_sample_as_often(seed: int, epoch: int) -> None:
    shares = np.array([0.1, 0.2, 0.7])
    drawn = drawn_by_shares(TABLE.task_ids, shares, seed, epoch)
    assert len(drawn) == 200
    of_tasks = np.bincount(TABLE.task_ids[drawn], minlength=3) / 200
    assert np.abs(of_tasks - shares).max() <= 0.02
    times = Counter(drawn.tolist())
    for task in range(3):
        counts = {times[index] for index in np.flatnonzero(TABLE.task_ids == task).tolist()}
        assert max(counts) - min(counts) <= 1
    assert not np.array_equal(drawn, drawn_by_shares(TABLE.task_ids, shares, seed, epoch + 1))


def test_a_task_without_a_share_is_not_drawn() -> None:
    drawn = drawn_by_shares(TABLE.task_ids, np.array([0.0, 0.5, 0.5]), 1, 0)
    assert np.bincount(TABLE.task_ids[drawn], minlength=3).tolist() == [0, 100, 100]
