"""What a training will take, estimated before it begins."""

from collections.abc import Mapping
from math import ceil, isclose
from typing import TypedDict

from trainauto.core.errors import InputError, Problem
from trainauto.core.quotas import apportioned
from trainauto.core.units import MIB
from trainauto.memory.cost.ratio_prior import UPPER
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor


class TrainingEstimate(TypedDict):
    """What a training takes, in binary megabytes.

    Attributes:
        per_batch_mb: what a batch of the usual mixture takes beside what is held between steps.
        estimated_peak_memory_mb: what the largest batch does, of whatever tasks the worst mixture has; with what is
            held: the highest memory in use that is to be expected.
        total_gpu_memory_mb: what a card should have, so that one step in a hundred takes more.
        estimated_batches: of all epochs; the last batch of each may hold fewer samples, and is one all the same.
    """

    per_batch_mb: float
    estimated_peak_memory_mb: float
    total_gpu_memory_mb: float
    estimated_batches: int


def estimate_training_memory(
    num_samples: int,
    task_distribution: Mapping[str, float],
    batch_size: int,
    num_epochs: int,
    *,
    predictor: MemoryPredictor | None = None,
) -> TrainingEstimate:
    """Estimate memory and length of a training.

    Args:
        num_samples: of the dataset.
        task_distribution: share of each task among the samples; they sum to 1.
        batch_size: samples of a batch.
        num_epochs: how often each sample is trained.
        predictor: says what batches take; ``None``: by the figures that BrainVLM published.

    Raises:
        InputError: a count is not above 0, shares do not sum to 1, or a task is unknown.
    """
    for name, value in (("num_samples", num_samples), ("batch_size", batch_size), ("num_epochs", num_epochs)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}: a whole number from 1 on is needed, got {value!r}")
    _check_shares(task_distribution)
    predictor = predictor or MemoryPredictor()
    size = min(batch_size, num_samples)
    shared_out = apportioned(size, task_distribution)
    mixture = {task: count for task, count in shared_out.items() if count}
    tasks = [task for task, share in task_distribution.items() if share > 0]
    largest = predictor.shape_of(tasks)._replace(samples=size)
    # Padded to its largest sample, a batch takes as much whatever its other samples are of.
    worst = max(tasks, key=lambda task: predictor.predict_bytes(largest, {task: size}))
    usual_bytes, upper_bytes = (
        predictor.held_bytes + predictor.predict_bytes(largest, {worst: size}, quantile=quantile)
        for quantile in (0.5, UPPER)
    )
    return {
        "per_batch_mb": predictor.predict_bytes(predictor.shape_of(mixture), mixture) / MIB,
        "estimated_peak_memory_mb": usual_bytes / MIB,
        "total_gpu_memory_mb": upper_bytes / MIB,
        "estimated_batches": num_epochs * ceil(num_samples / batch_size),
    }


def _check_shares(task_distribution: Mapping[str, float]) -> None:
    shares = list(task_distribution.values())
    if not shares or min(shares) < 0 or not isclose(sum(shares), 1.0, abs_tol=1e-3):
        raise InputError(
            Problem(
                f"task_distribution: shares sum to {sum(shares):g}, not to 1",
                advice="Write the share of each task among the samples: {'T1': 0.4, 'T2': 0.3, 'T3': 0.3}.",
            )
        )
