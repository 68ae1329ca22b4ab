"""Batches of any size in the form of a collator's."""

from typing import Any

import pytest
import torch

from tests.mixed_samples import MixedSamples, collate
from trainauto.core.errors import InputError
from trainauto.tasks.multitask.batches.collator import HeterogeneousCollator
from trainauto.tasks.multitask.prediction.batch_memory import PaddedShape
from trainauto.tasks.multitask.prediction.batch_templates import BatchTemplates
from trainauto.tasks.multitask.prediction.task_sizes import TaskSize, TaskSizes


def test_a_batch_has_the_form_of_a_collated_one() -> None:
    dataset = MixedSamples(9, longest=24)
    templates = BatchTemplates(collate, dataset, TaskSizes.of(dataset, collate))
    real = collate([dataset[0], dataset[2]])
    made = templates(PaddedShape(2, 24, 4))
    assert {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in made.items()} == {
        name: (tuple(value.shape), value.dtype) for name, value in real.items() if isinstance(value, torch.Tensor)
    }
    assert tuple(templates(PaddedShape(7, 30, 2))["pixel_values"].shape) == (7, 2, 3, 16, 16)


def test_batches_without_images_have_their_own_form() -> None:
    class Texts(MixedSamples):
        def get_sample_metadata(self, idx: int) -> dict[str, Any]:
            return {"task_type": "read" if idx else "one", "num_images": int(not idx), "num_tokens": 8}

    def collated(samples: list[dict[str, Any]]) -> dict[str, Any]:
        batch = collate(samples)
        return batch if len(samples[0]["input_ids"]) == 24 else {"input_ids": batch["input_ids"]}

    dataset = Texts(4)
    templates = BatchTemplates(collated, dataset, TaskSizes.of(dataset, collated))
    assert set(templates(PaddedShape(3, 8, 0))) == {"input_ids"}
    assert "pixel_values" in templates(PaddedShape(3, 8, 1))


def test_batches_without_images_have_the_place_that_the_collator_keeps() -> None:
    class Sometimes:
        def __len__(self) -> int:
            return 4

        def get_sample_metadata(self, idx: int) -> dict[str, Any]:
            return {"task_type": "see" if idx % 2 else "read", "num_images": idx % 2, "num_tokens": 3}

        def __getitem__(self, idx: int) -> dict[str, Any]:
            task = self.get_sample_metadata(idx)["task_type"]
            return {"input_ids": [1, 2, 3], "images": [torch.zeros(1, 8, 8)] * (idx % 2), "task_type": task, "label": 0}

    dataset = Sometimes()
    collator = HeterogeneousCollator.of_dataset(dataset)
    templates = BatchTemplates(collator, dataset, TaskSizes.of(dataset, collator))
    real = collator([dataset[0], dataset[2]])
    made = templates(PaddedShape(2, 3, 0))
    assert made["pixel_values"].shape == real["pixel_values"].shape == (2, 1, 1, 8, 8)
    assert templates(PaddedShape(2, 3, 3))["image_mask"].shape == (2, 3)


def test_what_is_no_batch_is_refused() -> None:
    dataset = MixedSamples(3)
    sizes = TaskSizes.of(dataset, collate)
    with pytest.raises(InputError, match="one row each, got"):
        BatchTemplates(lambda _samples: {"loss": torch.zeros(())}, dataset, sizes)
    with pytest.raises(InputError, match="give make_batch"):
        BatchTemplates(collate, dataset, TaskSizes.given({"one": TaskSize(8, 1)}))
