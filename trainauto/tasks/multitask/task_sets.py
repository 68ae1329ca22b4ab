"""Samples of several tasks as the loader asks for them, and a validation set of them."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainauto.core.words import counted
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.engine.batched_validation import BatchedValidation
from trainauto.integrations.huggingface.own_stream import OwnStream
from trainauto.integrations.map_samples import MapSamples, MapStyle, seeded
from trainauto.integrations.samples import NestedSamples, template_of
from trainauto.integrations.structure import leaves_of
from trainauto.tasks.multitask.batches.samples import SampleTable
from trainauto.tasks.multitask.model_inputs import TensorsOnly
from trainauto.tasks.multitask.task_model import LOSS, TaskModel

ACCURACY = "accuracy"


class TaskSampleSet(MapSamples):
    """Samples of several tasks, and how batches are made of them.

    Args:
        name: of the set.
        samples: what is registered: a dataset by number.
        table: what is known of all its samples.
        collate: makes batches.
        largest: number of the sample that plans go by.
        drawn: what training draws by; ``None`` of a validation set.
    """

    if_changed = (
        "Give the samples of then; or leave --auto_resume out: a run of its own begins, from weights of this one where "
        "its model loads some."
    )

    def __init__(
        self,
        name: str,
        samples: MapStyle,
        table: SampleTable,
        collate: TensorsOnly,
        largest: int,
        drawn: OwnStream | None = None,
    ) -> None:
        costs = drawn.costs if drawn is not None else None
        super().__init__(samples, collate, longest=int(costs.max()) if costs is not None else None)
        self.name, self.table = name, table
        known = (table.task_ids, table.images, table.sizes.tokens)
        self.known_checksums = {"samples": zlib.crc32(b"".join(np.ascontiguousarray(part).tobytes() for part in known))}
        with seeded(0):
            sample = self[SampleKey(largest, 0, 0)]
            template = template_of(self.batch([sample]), self.batch([sample] * 3), leaves_of, {})
        self.workload = NestedSamples(template)
        if drawn is not None and drawn.workload is not None and costs is not None:
            self.workload = drawn.workload(template)
            self.mean_length, self.mean_of_packed = float(np.mean(costs)), drawn.mean_samples


class TaskValidation(BatchedValidation):
    """Mean loss and accuracy of each task, on samples that are not trained; the loss is without weights of tasks.

    Args:
        dataset: the samples.
        most: largest batch.
        tasks: names, in the order of their ids.
    """

    dataset: TaskSampleSet
    smaller = "smaller samples"

    def __init__(self, dataset: TaskSampleSet, most: int, tasks: Sequence[str]) -> None:
        table = dataset.table
        # The largest first: most images, and of those most tokens.
        sizes = table.images * (1 + int(table.sizes.tokens.max())) + table.sizes.tokens
        super().__init__(dataset, most, sizes, seen=counted(len(dataset), "sample"), samples=dataset.identity())
        self._tasks = tuple(tasks)
        self.better_is_higher = {LOSS: False, ACCURACY: True, **{accuracy_of(task): True for task in tasks}}
        self.better_is_higher |= {loss_of(task): False for task in tasks}

    def batch(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        """Return these samples as a batch."""
        return self.dataset.some(indices)

    def measure(self, model: TaskModel, tensors: Mapping[str, Tensor]) -> Mapping[str, float]:
        """Return sums over a batch's samples by task, each as its share of all samples."""
        found = model.results(tensors)
        count = len(found.losses)
        sums: dict[str, Tensor] = {LOSS: found.losses.sum()}
        is_right = None
        if found.predictions is not None:
            is_right = found.predictions == tensors["labels"].reshape(-1)
            sums[ACCURACY] = is_right.sum()
        for task, mask in zip(self._tasks, found.masks, strict=True):
            # Not losses[mask], whose length the host would wait for.
            sums[_seen(task)], sums[loss_of(task)] = mask.sum(), torch.where(mask, found.losses, 0).sum()
            if is_right is not None:
                sums[accuracy_of(task)] = (is_right & mask).sum()
        return {name: float(value) / count for name, value in sums.items()}

    def metrics(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Return the mean loss and the accuracy, of all samples and of those of each task there is."""
        metrics = {name: means[name] for name in (LOSS, ACCURACY) if name in means}
        for task in self._tasks:
            if seen := means[_seen(task)]:
                of_task = (name for name in (loss_of(task), accuracy_of(task)) if name in means)
                metrics |= {name: means[name] / seen for name in of_task}
        return metrics


def accuracy_of(task: str) -> str:
    """Return the name of a task's accuracy among metrics."""
    return f"{ACCURACY}_{task}"


def loss_of(task: str) -> str:
    """Return the name of a task's mean loss among metrics."""
    return f"{LOSS}_{task}"


def _seen(task: str) -> str:
    return f"seen_{task}"


def accuracies(metrics: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, float]:
    """Return the accuracy of each task out of the metrics of a validation; empty of a model without predictions."""
    return {task: float(metrics[accuracy_of(task)]) for task in tasks if accuracy_of(task) in metrics}


def accuracy_text(accuracies: Mapping[str, float]) -> str:
    """Return accuracies in words: ``T1 99.8 %, T2 98.4 %``."""
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in accuracies.items())
