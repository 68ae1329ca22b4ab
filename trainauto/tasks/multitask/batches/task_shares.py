"""Which share of the samples is of which task: what a person writes, checked, and draws that keep to it."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.hashing import splitmix64
from trainauto.core.quotas import quotas
from trainauto.core.shuffling import shuffled_order
from trainauto.data.packing import IntArray
from trainauto.tasks.multitask.batches.samples import SampleTable

FloatArray = NDArray[np.float64]

EPOCH, REPLACEMENT = "epoch", "replacement"
SAMPLINGS = (EPOCH, REPLACEMENT)
"""Every sample once an epoch; or as many of each task as wanted, some samples more often and others not at all."""


def task_shares(distribution: Mapping[str, float] | None, table: SampleTable, sampling: str) -> FloatArray | None:
    """Return the wanted share of each task, shape (tasks,), sum 1; ``None`` if none is wanted.

    Shares need not sum to 1: they are taken in proportion. A task that has no samples is left out within an epoch,
    where nothing can be drawn of it anyway.

    Args:
        distribution: share by name of a task.
        table: the samples.
        sampling: one of :data:`SAMPLINGS`.

    Raises:
        InputError: sampling or shares cannot be used; each is named.
    """
    if sampling not in SAMPLINGS:
        raise InputError(Problem(f"sampling: no '{sampling}' is known", advice=nearest(str(sampling), SAMPLINGS)))
    if distribution is None:
        if sampling == REPLACEMENT:
            advice = "Give task_distribution, such as {'T1': 0.4, 'T2': 0.3, 'T3': 0.3}."
            raise InputError(Problem("sampling='replacement' keeps to shares, and there are none", advice=advice))
        return None
    problems = [
        Problem(f"task_distribution: the share of '{name}' is {share!r}: a number, 0 or more, is needed")
        for name, share in distribution.items()
        if isinstance(share, bool) or not isinstance(share, int | float) or not math.isfinite(share) or share < 0
    ]
    for name in table.tasks:
        if name not in distribution:
            advice = f"{nearest(name, distribution)} Give it 0 where it is to come last (or never, with replacement)."
            problems.append(Problem(f"task_distribution: task '{name}' of the dataset has no share", advice=advice))
    if sampling == REPLACEMENT:
        for name, share in distribution.items():
            if name not in table.tasks and share:
                advice = nearest(name, table.tasks)
                problems.append(Problem(f"task_distribution: there is no sample of task '{name}'", advice=advice))
    if problems:
        raise InputError(problems)
    shares = np.array([distribution[name] for name in table.tasks], np.float64)
    if not shares.sum() > 0:
        raise InputError("task_distribution: no task that the dataset has samples of has a share above 0")
    return np.asarray(shares / shares.sum())


def drawn_by_shares(task_ids: IntArray, shares: FloatArray, seed: int, epoch: int) -> IntArray:
    """Return as many samples as there are, of each task the wanted share of them, ascending, shape (samples,).

    Counts are rounded by largest remainders, so that each is within one sample of its share. Of a task, every sample is
    drawn as often as any other, give or take once: which ones come once more the seed and the epoch decide.

    Args:
        task_ids: number of each sample's task; tasks with a share have samples.
        shares: of the tasks, sum 1.
        seed: decides everything random.
        epoch: 0-based.
    """
    by_task = np.argsort(task_ids, kind="stable")
    counts = np.bincount(task_ids, minlength=len(shares))
    starts = np.cumsum(counts) - counts
    drawn = []
    for task, wanted in enumerate(quotas(shares, len(task_ids)).tolist()):
        if wanted:
            members = by_task[starts[task] : starts[task] + counts[task]]
            rounds, more = divmod(wanted, len(members))
            shuffled = shuffled_order(len(members), splitmix64(seed ^ splitmix64(task + 1)), epoch)
            drawn += [np.tile(members, rounds), members[shuffled[:more]]]
    return np.sort(np.concatenate(drawn))
