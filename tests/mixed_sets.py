"""Sets of samples of several tasks, and prices of their batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch.utils.data import Dataset

from trainauto.core.units import MIB
from trainauto.data.packing import IntArray, SampleSizes
from trainauto.tasks.multitask.batches.samples import SampleTable

TASKS = ("T1", "T2", "T3")
IMAGES = {"T1": 1, "T2": 2, "T3": 4}


@dataclass(frozen=True)
class PricedMib:
    """A MiB for 16 padded tokens, and 8 MiB for an image: in bytes."""

    unit: str = "bytes"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        return samples * longest * (MIB // 16) + images * 8 * MIB


class MixedSet(Dataset[dict[str, Any]]):
    """Samples that say what they are; each holds its own index as tokens, images and number.

    Args:
        tasks: of the samples.
        tokens: of each; images follow the task.
    """

    def __init__(self, tasks: Sequence[str], tokens: Sequence[int]) -> None:
        self.tasks, self.tokens = tasks, tokens
        self.loaded = 0

    def __len__(self) -> int:
        return len(self.tasks)

    def images(self, idx: int) -> int:
        return IMAGES.get(self.tasks[idx], 0)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        self.loaded += 1
        return {
            "input_ids": torch.full((self.tokens[idx],), idx),
            "images": [torch.full((1, 2, 2), float(idx)) for _ in range(self.images(idx))],
            "task_type": self.tasks[idx],
            "number": idx,
        }


class DescribedSet(MixedSet):
    """The same, described without loading a sample."""

    def get_sample_metadata(self, idx: int) -> dict[str, Any]:
        return {"task_type": self.tasks[idx], "num_images": self.images(idx), "num_tokens": self.tokens[idx]}


def mixed_set(samples: int, shares: Sequence[float] = (0.5, 0.3, 0.2), seed: int = 0) -> DescribedSet:
    """Return samples of T1, T2 and T3 in these shares, of 4 to 60 tokens."""
    numbers = np.random.default_rng(seed)
    tasks = numbers.choice(TASKS, samples, p=shares).tolist()
    return DescribedSet(tasks, numbers.integers(4, 61, samples).tolist())


def table_of(dataset: MixedSet) -> SampleTable:
    """Return what is known of a set."""
    ids = np.array([TASKS.index(task) for task in dataset.tasks], np.int64)
    images = np.array([IMAGES[task] for task in dataset.tasks], np.int64)
    return SampleTable(TASKS, ids, SampleSizes(np.array(dataset.tokens, np.int64), images))


@st.composite
def mixed_sets(draw: st.DrawFn, least: int = 1, most: int = 60) -> DescribedSet:
    """Return any small set."""
    kinds = st.tuples(st.sampled_from(TASKS), st.integers(0, 64))
    samples = draw(st.lists(kinds, min_size=least, max_size=most))
    return DescribedSet([task for task, _ in samples], [tokens for _, tokens in samples])


def taken_mib(dataset: MixedSet, batch: Sequence[int]) -> float:
    """Return what a batch takes, padded to its longest text and most images."""
    longest, most = max(dataset.tokens[i] for i in batch), max(dataset.images(i) for i in batch)
    return len(batch) * (longest / 16 + 8 * most)
