"""What a Trainer of several tasks draws (A37 to A40 in its loop)."""

import numpy as np
import pytest
import torch

from trainauto.core.errors import InputError
from trainauto.data.packing import IntArray, SampleSizes
from trainauto.integrations.samples import template_of
from trainauto.integrations.structure import leaves_of
from trainauto.tasks.multitask.batches.sample_cost import PaddedUnits
from trainauto.tasks.multitask.batches.samples import SampleTable
from trainauto.tasks.multitask.batches.task_stream import PaddedSamples, TaskMixing, own_stream


class Bytes:
    """A cost in bytes: an image takes 50 times what a token does."""

    unit = "bytes"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        return 1000 + 10 * samples * longest + 500 * images


def table(samples: int = 120) -> SampleTable:
    ids = np.arange(samples) % 3
    return SampleTable(("T1", "T2", "T3"), ids, SampleSizes(8 + np.arange(samples) % 7, ids + 1))


def stream(mixing: TaskMixing, cost: Bytes | None = None, **options: object):
    given = {"step_samples": None, "most_samples": None, "packs": True, **options}
    return own_stream(table(), mixing, cost, 3, **given)  # type: ignore[arg-type]


def test_an_image_weighs_what_it_takes_in_memory() -> None:
    own = stream(TaskMixing(), Bytes())
    assert own.packed is not None
    assert own.packed.cost == PaddedUnits(50)
    assert own.costs is not None
    assert own.costs.max() == 14 + 3 * 50
    assert stream(TaskMixing(), None).packed.cost == PaddedUnits(1)  # type: ignore[union-attr]
    assert stream(TaskMixing(tokens_per_image=7), Bytes()).packed.cost == PaddedUnits(7)  # type: ignore[union-attr]


def test_packed_batches_stay_within_their_bound_and_give_each_sample_once() -> None:
    packed = stream(TaskMixing(), Bytes(), most_samples=20).packed
    assert packed is not None
    bound, place, seen = 2000, 0, []
    known = table()
    while place < 120:
        packed.pack_from(place, bound)
        count = packed.left_of_batch(place)
        batch = [packed.index_at(position) for position in range(place, place + count)]
        longest, most = known.sizes.tokens[batch].max(), known.images[batch].max()
        assert count * (longest + 50 * most) <= bound
        assert count <= 20
        seen += batch
        place += count
    assert sorted(seen) == list(range(120))


@pytest.mark.parametrize("options", [{"step_samples": 12}, {"packs": False, "most_samples": 12}])
def test_counted_steps_have_every_sample_once_in_the_order_that_is_wanted(options: dict[str, object]) -> None:
    own = stream(TaskMixing({"T1": 0.5, "T2": 0.25, "T3": 0.25}, task_diversity_weight=1.0), None, **options)
    assert own.costs is None
    first, second = own.stream.order(0), own.stream.order(1)
    assert sorted(first.tolist()) == list(range(120))
    assert first.tolist() != second.tolist()
    # Half of what comes first is T1, until a third of the set has been given out as such.
    shares = np.bincount(first[:60] % 3, minlength=3) / 60
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.05)


def test_quotas_hold_with_replacement() -> None:
    own = stream(TaskMixing({"T1": 0.6, "T2": 0.2, "T3": 0.2}, "replacement"), None, step_samples=12)
    counts = np.bincount(own.stream.order(0) % 3, minlength=3)
    assert (counts / 120).tolist() == pytest.approx([0.6, 0.2, 0.2], abs=0.02)


def test_shares_of_unknown_tasks_are_refused() -> None:
    with pytest.raises(InputError, match="T9"):
        stream(TaskMixing({"T1": 1, "T2": 1, "T3": 1, "T9": 1}, "replacement"))


def test_a_batch_is_measured_by_its_padding() -> None:
    def batch(samples: int) -> dict[str, torch.Tensor]:
        return {
            "input_ids": torch.zeros(samples, 6, dtype=torch.long),
            "pixel_values": torch.zeros(samples, 2, 3, 4, 4),
        }

    template = template_of(batch(1), batch(3), leaves_of, {})
    workload = PaddedSamples(template, PaddedUnits(10)).weighed(None)
    assert isinstance(workload, PaddedSamples)
    shape = workload.shape(batch(5))
    assert (shape.samples, shape.tokens, shape.images) == (5, 5 * (6 + 20), 10)
    assert workload.dummy(4, 26)["pixel_values"].shape == (4, 2, 3, 4, 4)


def test_mean_samples_are_those_of_real_batches() -> None:
    """Rates follow them: counted by what samples cost alone, they were more than batches may hold."""
    own = stream(TaskMixing(), Bytes(), most_samples=6)
    assert own.packed is not None
    assert own.costs is not None
    assert own.mean_samples is not None
    for bound in (400, 1500, 5000):
        place, batches = 0, 0
        own.packed.pack_from(0, bound)
        while place < 120:
            place, batches = place + own.packed.left_of_batch(place), batches + 1
        assert own.mean_samples(bound) == 120 / batches
        assert bound / own.costs.mean() > own.mean_samples(bound), "the faulty rule"
    assert own.mean_samples(5000) == 6
