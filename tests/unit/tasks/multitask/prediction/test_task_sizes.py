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
    assert sizes.examples == {True: 2, False: 1}


def test_texts_are_measured_where_nobody_says_their_tokens() -> None:
    dataset = MixedSamples(12, longest=20, says_tokens=False)
    sizes = TaskSizes.of(dataset, collate)
    assert {task: size.images for task, size in sizes.by_task.items()} == {"one": 1, "two": 2, "four": 4}
    assert sizes.largest == TaskSize(20, 4)


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ([{"input_ids": 1}], "has no get_sample_metadata"),
        (Told(), "is empty"),
        (Told({"task_type": "T1"}), r"get_sample_metadata\(0\) gives \{'task_type': 'T1'\}; needed are task_type"),
        (Told({"task_type": 1, "num_images": 1}), "task_type, a name"),
        (Told({"task_type": "T1", "num_images": -1}), "num_images, a whole number"),
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
