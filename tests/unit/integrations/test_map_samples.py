"""Map-style datasets by key: their randomness follows from the position in the stream."""

import pickle
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
    first, again, other = (samples.collate(samples.__getitems__(keys(seed)))["batch"] for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert (first[:, 1:] != other[:, 1:]).all()
    assert (first[0, 1:] != first[1, 1:]).all()
    assert first[:, 0].tolist() == [1, 4]
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == expected


def test_what_collating_draws_follows_the_seed_as_well() -> None:
    """Masks of a collator are the same with any number of workers, and after a resume."""

    def masked(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"rows": torch.stack(rows), "mask": torch.rand(2), "noise": torch.tensor(random.random())}

    samples = MapSamples(Noise(), masked)
    torch.manual_seed(1)
    expected = torch.rand(()).item()
    torch.manual_seed(1)
    first, again, other = (samples.collate(samples.__getitems__(keys(seed))) for seed in (7, 7, 8))
    assert torch.rand(()).item() == expected
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["mask"], other["mask"])
    assert not torch.equal(first["noise"], other["noise"])
    assert first["mask"][0] != first["rows"][0, 3]


def test_workers_are_sent_no_workload() -> None:
    """Started by spawn, they would be sent the functions in it, which need not be sendable."""
    samples = MapSamples([torch.zeros(8)] * 2, default_collate)
    rows = [leaves_of(default_collate([torch.zeros(8)] * number)) for number in (1, 3)]
    samples.workload = NestedSamples(template_of(*rows, leaves_of, {}), lambda batch: len(batch["batch"]))
    sent = pickle.loads(pickle.dumps(samples))
    assert len(sent.collate(sent.__getitems__(keys(1)[:1]))["batch"]) == 1
    assert samples.workload.weight(rows[1]) == 3


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
