"""What a training takes in all."""

from math import ceil

import pytest

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor
from trainauto.tasks.multitask.prediction.published_constants import published_gib
from trainauto.tasks.multitask.prediction.training_estimate import estimate_training_memory

DISTRIBUTION = {"T1": 0.4, "T2": 0.3, "T3": 0.3}


def test_the_example_of_the_source() -> None:
    """A36, with published figures: a batch pads every sample to two images."""
    estimate = estimate_training_memory(
        num_samples=5000, task_distribution=DISTRIBUTION, batch_size=16, num_epochs=3, predictor=MemoryPredictor("cpu")
    )
    assert estimate["per_batch_mb"] == pytest.approx(16 * published_gib(2) * 1024, rel=1e-4)
    assert estimate["estimated_peak_memory_mb"] == pytest.approx(estimate["per_batch_mb"])
    assert estimate["total_gpu_memory_mb"] > estimate["estimated_peak_memory_mb"]
    assert estimate["estimated_batches"] == 3 * 313


def test_the_last_batch_of_an_epoch_counts() -> None:
    """A36: the source rounded samples of each task and batches down."""

    def faulty(samples: int, batch_size: int, epochs: int) -> int:
        return epochs * sum(int(samples * share) for share in DISTRIBUTION.values()) // batch_size

    estimate = estimate_training_memory(33, DISTRIBUTION, 16, 2, predictor=MemoryPredictor("cpu"))
    assert estimate["estimated_batches"] == 2 * ceil(33 / 16) == 6
    assert faulty(33, 16, 2) < 6


def test_a_batch_holds_no_more_samples_than_there_are() -> None:
    few = estimate_training_memory(4, DISTRIBUTION, 16, 1, predictor=MemoryPredictor("cpu"))
    assert few["estimated_peak_memory_mb"] == pytest.approx(4 * published_gib(2) * 1024, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, DISTRIBUTION, 16, 1), "num_samples: a whole number from 1 on"),
        ((10, DISTRIBUTION, 1.5, 1), "batch_size: a whole number"),
        ((10, {"T1": 0.4, "T2": 0.3}, 16, 1), "shares sum to 0.7, not to 1"),
        ((10, {"T1": 40, "T2": 60}, 16, 1), "shares sum to 100"),
        ((10, {"T1": 0.5, "T9": 0.5}, 16, 1), "no sample is of task 'T9'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple, said: str) -> None:
    with pytest.raises(InputError, match=said):
        estimate_training_memory(*arguments, predictor=MemoryPredictor("cpu"))
