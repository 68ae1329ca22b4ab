"""Where predictions of batches come from: traces of the model at hand, or what was published of another one."""

import logging
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem
from trainauto.core.units import GIB
from trainauto.tasks.multitask.prediction.batch_memory import BatchMemory, Floats
from trainauto.tasks.multitask.prediction.batch_templates import BatchTemplates, MakeBatch
from trainauto.tasks.multitask.prediction.published_constants import PUBLISHED, published_gib
from trainauto.tasks.multitask.prediction.task_factors import Doubt
from trainauto.tasks.multitask.prediction.task_sizes import Collate, Described, TaskSize, TaskSizes
from trainauto.tasks.multitask.prediction.traced_batches import Loss, TracedBatches, TraceError

logger = logging.getLogger(__name__)

OWN_DOUBT = 0.01
"""What tasks differ by beyond their sizes: they are the same model's."""

PUBLISHED_DOUBT = Doubt(shared=0.3, own=0.1)
"""Another model takes another multiple of what was published: three times as much is within the 99 % quantile, and ten
records outweigh it whatever they say."""

PUBLISHED_SCALE = 0.05
"""What one batch may differ by from a line through all of them."""


class MemorySource(Protocol):
    """Says what batches take before any was measured, beside what is held between steps."""

    @property
    def tasks(self) -> Mapping[str, TaskSize]:
        """The largest sample of each task."""

    @property
    def held_bytes(self) -> int:
        """What is held between training steps."""

    def typical_bytes(self, samples: ArrayLike, tokens: ArrayLike, images: ArrayLike, *, is_training: bool) -> Floats:
        """Return what padded batches take: ``images`` are those of the sample with most, and may be fractions."""

    def doubt(self, *, is_training: bool) -> Doubt:
        """Return how far that may be off."""

    def own_scale(self, typical_bytes: float, *, is_training: bool) -> float:
        """Return what a batch of such bytes has to itself."""

    def published(self) -> "MemorySource":
        """Return what was published, for the same tasks."""


class PublishedMemory:
    """What BrainVLM published, for every sample of a batch alike.

    Args:
        sizes: of tasks by other names than the published ones; ``None``: those.
        has_said: whether somebody has said already where the figures come from; else it is logged when they are used.
    """

    held_bytes = 0

    def __init__(self, sizes: TaskSizes | None, *, has_said: bool = False) -> None:
        published = {task: TaskSize(tokens=0, images=images) for task, images in PUBLISHED.items()}
        self.tasks: Mapping[str, TaskSize] = sizes.by_task if sizes is not None else published
        self._has_said = has_said

    def typical_bytes(self, samples: ArrayLike, tokens: ArrayLike, images: ArrayLike, *, is_training: bool) -> Floats:
        """Return so many samples' published bytes; texts do not matter."""
        self._say()
        n, _, m = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (samples, tokens, images)))
        first, second = (GIB * published_gib(count, is_training=is_training) for count in (0, 1))
        whole: Floats = n * (first + m * (second - first))
        return whole

    def doubt(self, *, is_training: bool) -> Doubt:
        """Return that of another model's figures."""
        del is_training
        return PUBLISHED_DOUBT

    def own_scale(self, typical_bytes: float, *, is_training: bool) -> float:
        """Return a share of any batch."""
        del typical_bytes, is_training
        return PUBLISHED_SCALE

    def published(self) -> "PublishedMemory":
        """Return itself."""
        return self

    def _say(self) -> None:
        if not self._has_said:
            self._has_said = True
            logger.warning(
                "no model is at hand: memory is predicted from what BrainVLM published of its own (%.2f GiB a sample "
                "with one image in training), until batches are recorded. Give model= and samples= to have it traced.",
                published_gib(1),
            )


class TracedMemory:
    """What the steps of a model take; it is traced when that is first asked for.

    Args:
        model: a real one.
        optimizer: what steps it; ``None``: AdamW.
        make_batch: makes batches.
        loss: what is minimised.
        sizes: of the tasks.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer | None, make_batch: MakeBatch, loss: Loss, sizes: TaskSizes
    ) -> None:
        self.tasks: Mapping[str, TaskSize] = sizes.by_task
        self._model, self._optimizer, self._make_batch, self._loss = model, optimizer, make_batch, loss
        self._sizes = sizes
        self._memory: dict[bool, BatchMemory] = {}

    @property
    def held_bytes(self) -> int:
        """Weights, and the optimizer's state."""
        return self.memory(is_training=True).held_bytes

    def memory(self, *, is_training: bool) -> BatchMemory:
        """Return what batches take.

        Raises:
            TraceError: a training step cannot be traced.
        """
        if is_training not in self._memory:
            try:
                self._memory[is_training] = self._traced(is_training)
            except TraceError as error:
                if is_training:
                    raise
                logger.info("a forward pass alone cannot be traced (%s): it counts as a training step", error)
                self._memory[is_training] = self.memory(is_training=True)
        return self._memory[is_training]

    def _traced(self, is_training: bool) -> BatchMemory:
        optimizer = (self._optimizer or _adamw(self._model)) if is_training else None
        traced = TracedBatches(self._model, self._make_batch, self._loss, optimizer)
        largest = self._sizes.largest
        return traced.memory(largest.tokens, self._sizes.fewest_images, largest.images)

    def typical_bytes(self, samples: ArrayLike, tokens: ArrayLike, images: ArrayLike, *, is_training: bool) -> Floats:
        """Return what is measured in half of all cases."""
        return self.memory(is_training=is_training).typical_bytes(samples, tokens, images)

    def doubt(self, *, is_training: bool) -> Doubt:
        """Return that of kernels, which no trace sees."""
        return Doubt(self.memory(is_training=is_training).belief.ratio, OWN_DOUBT)

    def own_scale(self, typical_bytes: float, *, is_training: bool) -> float:
        """Return that of what was traced."""
        return self.memory(is_training=is_training).own_scale(typical_bytes)

    def published(self) -> PublishedMemory:
        """Return what was published, for the same tasks; who asks says so."""
        return PublishedMemory(self._sizes, has_said=True)


def _adamw(model: nn.Module) -> Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained or list(model.parameters()))


# --- which of them


Samples = Described | Mapping[str, TaskSize]
"""A dataset that says what its samples are, or the largest sample of each task."""

_NO_SAMPLES = Problem(
    "a model is given, and nothing says what its batches are",
    advice="Give samples=train_dataset and collator=HeterogeneousCollator(tokenizer); or samples={'T1': "
    "TaskSize(tokens=64, images=1)} and make_batch.",
)


def published_source(samples: Samples | None, collator: Collate | None) -> PublishedMemory:
    """Return what was published, for the tasks of these samples.

    Raises:
        InputError: the samples say nothing of themselves.
    """
    return PublishedMemory(None if samples is None else _sizes_of(samples, collator))


def traced_source(
    model: nn.Module,
    optimizer: Optimizer | None,
    samples: Samples | None,
    collator: Collate | None,
    make_batch: MakeBatch | None,
    loss: Loss,
) -> TracedMemory:
    """Return what a model takes, to be traced when that is first asked for; see ``MemoryPredictor``.

    Raises:
        InputError: nothing says what its batches are.
    """
    if samples is None or (make_batch is None and (isinstance(samples, Mapping) or collator is None)):
        raise InputError(_NO_SAMPLES)
    sizes = _sizes_of(samples, collator)
    if make_batch is None and collator is not None and not isinstance(samples, Mapping):
        make_batch = BatchTemplates(collator, samples, sizes)
    if make_batch is None:
        raise InputError(_NO_SAMPLES)
    return TracedMemory(model, optimizer, make_batch, loss, sizes)


def _sizes_of(samples: Samples, collator: Collate | None) -> TaskSizes:
    return TaskSizes.given(samples) if isinstance(samples, Mapping) else TaskSizes.of(samples, collator)
