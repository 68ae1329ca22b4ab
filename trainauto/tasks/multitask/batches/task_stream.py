"""What a Trainer of several tasks draws: its samples in mixed batches, filled to the memory there is, or counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainauto.core.plan import BatchShape
from trainauto.core.workload import Tensors
from trainauto.data.packing import BatchCost, IntArray, SampleSizes
from trainauto.data.sampler import ShuffledStream
from trainauto.integrations.huggingface.own_stream import OwnStream
from trainauto.integrations.samples import NestedSamples, Template, Weigh
from trainauto.tasks.multitask.batches.mixed_stream import MixedStream
from trainauto.tasks.multitask.batches.sample_cost import PaddedUnits
from trainauto.tasks.multitask.batches.samples import SampleTable
from trainauto.tasks.multitask.batches.task_shares import EPOCH

MOST_TOKENS_PER_IMAGE = 4096
"""An image that weighs more counts as so many tokens: texts then weigh next to nothing anyway."""

NO_BOUND = 2**62


@dataclass(frozen=True)
class TaskMixing:
    """How the samples of tasks come together in batches.

    Attributes:
        task_distribution: wanted share of each task, by name; ``None`` for those of the set. Within an epoch it decides
            which come first; every sample comes once all the same.
        sampling: ``"epoch"``, every sample once; ``"replacement"``, shares are kept to, some samples come more often.
        task_diversity_weight: 0 packs neighbours by size, 1 has every batch hold tasks as the whole set does.
        tokens_per_image: what an image weighs in memory beside a token; ``None`` finds it out by the traced model.
    """

    task_distribution: Mapping[str, float] | None = None
    sampling: str = EPOCH
    task_diversity_weight: float = 0.5
    tokens_per_image: int | None = None


class StepOrder(ShuffledStream):
    """Samples in the order in which mixed batches of a fixed number of them have them, every epoch another one.

    Args:
        batches: packs steps of so many samples.
    """

    def __init__(self, batches: MixedStream) -> None:
        super().__init__(batches.samples, batches.seed)
        self._batches = batches

    def samples_of(self, epoch: int) -> NDArray[np.int64]:
        """Return what an epoch gives out, ascending."""
        return self._batches.samples_of(epoch)

    def arranged(self, samples: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
        """Return samples of an epoch as their batches have them."""
        return samples[self._batches.batches_of(samples, NO_BOUND, seed, epoch).order]


class PaddedSamples(NestedSamples):
    """Batches of samples with texts and images, measured in what their padded rows cost.

    Args:
        template: of the sample that costs most.
        units: what batches cost.
        weigh: see :class:`~trainauto.integrations.samples.NestedSamples`.
    """

    def __init__(self, template: Template, units: PaddedUnits, weigh: Weigh | None = None) -> None:
        super().__init__(template, weigh)
        self._units = units

    def weighed(self, weigh: Weigh | None) -> "PaddedSamples":
        """Return the same kind of samples with other weights."""
        return PaddedSamples(self.template, self._units, weigh)

    def shape(self, tensors: Tensors) -> BatchShape:
        """Say how many samples a batch has, and what they cost with their padding."""
        samples = self.template.samples_of(tensors)
        rows, images = tensors.get("input_ids"), tensors.get("pixel_values")
        longest = rows.shape[1] if isinstance(rows, Tensor) else 0
        most = images.shape[1] if isinstance(images, Tensor) else 0
        each = int(self._units.cost(np.array(1), np.array(longest), np.array(most)))
        return BatchShape(samples, each, tokens=samples * each, images=samples * most)


def own_stream(
    table: SampleTable,
    mixing: TaskMixing,
    cost: BatchCost | None,
    seed: int,
    *,
    step_samples: int | None,
    most_samples: int | None,
    packs: bool,
) -> OwnStream:
    """Return what a Trainer draws by.

    Args:
        table: the samples.
        mixing: how they come together.
        cost: in bytes, of the model at hand: says what an image weighs beside a token; ``None`` where none is known.
        seed: decides everything random.
        step_samples: samples of every step, where they are fixed: batches are then counted.
        most_samples: most samples of a batch that is packed; of those that are counted, what they begin with.
        packs: whether batches may be packed at all: steps are no shares of several processes.

    Raises:
        InputError: the mixing cannot be used.
    """
    if table.images.any():  # a batch without images keeps one place for them
        table = replace(table, sizes=SampleSizes(table.sizes.tokens, np.maximum(table.images, 1)))
    units = PaddedUnits(_tokens_per_image(table, cost) if mixing.tokens_per_image is None else mixing.tokens_per_image)
    stream = MixedStream(
        table,
        units,
        seed,
        most_samples=step_samples or most_samples,
        task_diversity_weight=mixing.task_diversity_weight,
        task_distribution=mixing.task_distribution,
        sampling=mixing.sampling,
        bound_name="what a batch may hold",
    )
    alone = units.cost(np.ones(len(table), np.int64), table.sizes.tokens, table.images)
    is_alike = bool((alone == alone[0]).all())  # as many always fit: counting them says the same
    if step_samples is not None or not packs or is_alike:
        return OwnStream(StepOrder(stream))
    return OwnStream(stream, np.asarray(alone), lambda template: PaddedSamples(template, units), stream.mean_samples)


def _tokens_per_image(table: SampleTable, cost: BatchCost | None) -> int:
    """Return as how many tokens an image counts: by what it adds to the bytes of a batch; 1 if unknown."""
    longest, most = int(table.sizes.tokens.max()), int(table.images.max())
    if cost is None or not most or longest < 2:
        return 1
    whole = _bytes(cost, longest, most)
    of_image = whole - _bytes(cost, longest, most - 1)
    of_token = (whole - _bytes(cost, longest // 2, most)) / (longest - longest // 2)
    if of_image <= 0:
        return 0
    return max(1, round(of_image / of_token)) if of_token * MOST_TOKENS_PER_IMAGE > of_image else MOST_TOKENS_PER_IMAGE


def _bytes(cost: BatchCost, longest: int, images: int, samples: int = 16) -> float:
    sizes: Sequence[IntArray] = [np.array([value]) for value in (samples, longest, samples * images)]
    return float(cost.cost(*sizes)[0])
