"""Sizes of the samples of each task."""

from typing import Any

import pytest

from tests.mixed_samples import MixedSamples, collate
from trainauto.core.errors import InputError
from trainauto.tasks.multitask.prediction.task_sizes import TaskSize, TaskSizes


class Told:
    """A dataset of which only metadata are there."""

    def __init__(self, *metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    def __len__(self) -> int:
        return len(self.metadata)

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a sample was loaded")

    def get_sample_metadata(self, idx: int) -> dict[str, Any]:
        return self.metadata[idx]


def test_metadata_say_it_all_and_no_sample_is_loaded() -> None:
    """A11."""
    dataset = Told(
        {"task_type": "find", "num_images": 1, "num_tokens": 5},
        {"task_type": "tell", "num_images": 0, "num_tokens": 90},
        {"task_type": "find", "num_images": 3, "num_tokens": 4},
    )
    sizes = TaskSizes.of(dataset, None)
    assert sizes.by_task == {"find": TaskSize(5, 3), "tell": TaskSize(90, 0)}
    assert sizes.largest == TaskSize(90, 3)
    assert sizes.fewest_images == 0
    assert sizes.examples == {True: 0, False: 1}


def test_texts_are_measured_where_nobody_says_their_tokens() -> None:
    dataset = MixedSamples(12, longest=20, says_tokens=False)
    sizes = TaskSizes.of(dataset, collate)
    assert {task: size.images for task, size in sizes.by_task.items()} == {"one": 1, "two": 2, "four": 4}
    assert sizes.largest == TaskSize(20, 4)


def test_a_dataset_that_says_nothing_is_loaded_once() -> None:
    said = [{"task_type": "T1", "input_ids": [1, 2, 3], "images": [0, 0]}, {"task_type": "T2", "input_ids": [1]}]
    assert TaskSizes.of(said, None).by_task == {"T1": TaskSize(3, 2), "T2": TaskSize(1, 0)}


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Told(), "is empty"),
        (Told({"task_type": "T1"}), r"get_sample_metadata\(0\) returns \{'task_type': 'T1'\}"),
        (Told({"task_type": 1, "num_images": 1}), "a task's name is a string"),
        (Told({"task_type": "T1", "num_images": -1}), "num_images is -1: a whole number"),
        (Told({"task_type": "T1", "num_images": 1}), "does not say num_tokens"),
    ],
)
def test_what_is_missing_is_named(dataset: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        TaskSizes.of(dataset, None)


def test_sizes_can_be_given() -> None:
    sizes = TaskSizes.given({"T1": TaskSize(8, 1), "T2": TaskSize(4, 2)})
    assert (sizes.largest, sizes.fewest_images) == (TaskSize(8, 2), 1)
    with pytest.raises(InputError, match="no task is named"):
        TaskSizes.given({})
    with pytest.raises(InputError, match="images of a task"):
        TaskSize(3, -1)
