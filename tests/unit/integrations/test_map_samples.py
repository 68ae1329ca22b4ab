"""Map-style datasets by key: their randomness follows from the position in the stream."""

import random

import numpy as np
import torch
from torch.utils.data import default_collate

from trainauto.core.plan import Plan
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.integrations.map_samples import MapSamples
from trainauto.integrations.samples import NestedSamples, template_of
from trainauto.integrations.structure import leaves_of


class Noise:
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(()).item()])


def keys(seed: int) -> list[SampleKey]:
    return [SampleKey(index, 0, seed) for index in (1, 4)]


def test_augmentations_follow_the_seed_of_the_draw_and_leave_generators_alone() -> None:
    samples = MapSamples(Noise(), default_collate)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(()).item()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    first, again, other = (torch.stack(samples.__getitems__(keys(seed))) for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert (first[:, 1:] != other[:, 1:]).all()
    assert (first[0, 1:] != first[1, 1:]).all()
    assert first[:, 0].tolist() == [1, 4]
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == expected


def test_samples_are_made_to_the_size_in_their_key() -> None:
    samples = MapSamples([torch.arange(9)] * 2, default_collate, lambda sample, size: sample[:size])
    assert samples[SampleKey(0, 4, 0)].tolist() == [0, 1, 2, 3]


def test_the_largest_batch_of_a_budget_is_rows_of_the_longest() -> None:
    samples = MapSamples([torch.zeros(8)] * 2, default_collate, longest=8)
    rows = {number: default_collate([torch.zeros(8)] * number) for number in (1, 3)}
    sized = {"batch": {1: 1}}
    samples.workload = NestedSamples(template_of(rows[1], rows[3], leaves_of, sized), counts_tokens=True)
    assert samples.largest_batch(Plan.of(tokens=31), 1)["batch"].shape == (3, 8)
    assert samples.largest_batch(Plan.of(tokens=5), 1)["batch"].shape == (1, 8)
