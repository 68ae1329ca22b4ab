"""What a batch of several tasks takes, known before it runs and corrected by what was measured."""

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.units import GIB, MIB
from trainauto.core.words import counted
from trainauto.data.packing import IntArray
from trainauto.integrations.map_samples import MapStyle
from trainauto.memory.cost.ratio_prior import student4
from trainauto.tasks.multitask.batches.collated_batch import CollatedBatch, newest_batch
from trainauto.tasks.multitask.prediction.batch_memory import BatchMemory, PaddedShape
from trainauto.tasks.multitask.prediction.batch_templates import BatchTemplates, MakeBatch
from trainauto.tasks.multitask.prediction.device_room import usable_device
from trainauto.tasks.multitask.prediction.published_constants import PUBLISHED, published_gib, published_memory
from trainauto.tasks.multitask.prediction.task_factors import TaskFactors
from trainauto.tasks.multitask.prediction.task_sizes import Collate, TaskSize, TaskSizes
from trainauto.tasks.multitask.prediction.traced_batches import Loss, TracedModel, TraceError, model_loss

logger = logging.getLogger(__name__)

Tasks = Sequence[str] | Mapping[str, int]
"""The task of every sample of a batch, or how many samples it has of each."""

Samples = MapStyle | Mapping[str, TaskSize]
"""A dataset, or the largest sample of each task."""

LIKELY = 3.0
"""Times what a traced model is predicted to take for a batch, up to which a peak may be that batch's: traces are within
some per cent, and small batches take a constant beside that."""

JUDGED = 20
"""Last records of each task that its accuracy is the mean of."""


_NO_SAMPLES = Problem(
    "a model is given, and nothing says what its batches are",
    advice="Give samples=train_dataset and collator=HeterogeneousCollator(tokenizer); or samples={'T1': "
    "TaskSize(tokens=64, images=1)} and make_batch.",
)


class PredictedCost:
    """A :class:`~trainauto.data.packing.BatchCost` of padded training batches in bytes, beside what is held.

    It stays what it is when it is made: batches that are recorded later change it no more.

    Args:
        memory: what batches take by their size.
        factor: by which they take more than that.
        scale: of the logarithm by which two batches relate otherwise.
    """

    unit = "bytes"

    def __init__(self, memory: BatchMemory, factor: float, scale: float) -> None:
        self._memory, self._factor, self._scale = memory, factor, scale

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the bytes of batches.

        Args:
            samples: of each.
            longest: tokens of its longest text.
            images: places for images in the padded batch: its samples times the images of the one with most.
        """
        samples = np.maximum(1, np.asarray(samples))
        typical = self._memory.typical_bytes(samples, longest, np.asarray(images) / samples)
        whole: IntArray = np.ceil(self._factor * typical).astype(np.int64)
        return whole

    def margin(self, probability: float) -> float:
        """Return the factor that a batch exceeds its cost by with at most this probability."""
        if not 0 < probability < 1:
            raise ValueError(f"a probability lies between 0 and 1, got {probability}")
        return max(1.0, exp(student4(1 - probability) * self._scale))


@dataclass(frozen=True)
class _Recorded:
    """A batch whose peak was measured.

    Attributes:
        tasks: how many samples it has of each.
        tokens: of its longest text; ``None`` for that of the largest samples of its tasks.
        images: of the sample with most, likewise.
    """

    tasks: Mapping[str, int]
    tokens: int | None = None
    images: int | None = None

    @classmethod
    def of(cls, batch: CollatedBatch) -> "_Recorded":
        told = batch.metadata
        return cls(
            Counter(str(sample["task_type"]) for sample in told),
            max(sample["num_tokens"] for sample in told),
            max(sample["num_images"] for sample in told),
        )


class MemoryPredictor:
    """Memory of batches by their tasks, beside what is held between steps: weights, optimizer state (``held_bytes``).

    Batches are padded to their longest text and most images, so that every sample of one takes as much as its largest.
    With a model at hand its step is traced when the first prediction is asked for; without one, the figures that
    BrainVLM published stand in, which is logged once. Either is corrected by every batch that is recorded, by task.

    Attributes:
        has_model: whether a model was given; a Trainer gives its own (:meth:`follow`) where none was.

    Args:
        device: where training runs. A model is traced where it lies: move it there before the first prediction.
        model: what is trained.
        optimizer: what steps it; ``None``: AdamW, as Trainers take.
        samples: the dataset, see :func:`~trainauto.tasks.multitask.batches.samples.read_samples`; or the largest
            sample of each task.
        collator: makes batches of the dataset; what is traced has their form.
        make_batch: makes batches of a size instead, see :data:`MakeBatch`.
        loss: what is minimised; by default the loss that the model gives for what it takes of a batch.

    Raises:
        InputError: a model, and nothing that says what its batches are; or the device is none.
    """

    unit = "bytes"

    def __init__(
        self,
        device: str = "cuda:0",
        *,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        samples: Samples | None = None,
        collator: Collate | None = None,
        make_batch: MakeBatch | None = None,
        loss: Loss = model_loss,
    ) -> None:
        self.device = usable_device(device)
        sizes = None if samples is None else _sizes_of(samples, collator)
        self._sizes = _PUBLISHED_SIZES if sizes is None else sizes.by_task
        self._traced: TracedModel | None = None
        self._has_said = self._has_asked = False
        self.has_model = model is not None
        if model is not None:
            self._traced = self._trace_of(model, optimizer, samples, sizes, collator, make_batch, loss)
        self._factors: dict[bool, TaskFactors] = {}
        self._errors: dict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=JUDGED))

    def follow(self, model: nn.Module, *, samples: MapStyle, collator: Collate, loss: Loss = model_loss) -> None:
        """Predict what this model takes from now on, where none was given; a Trainer does it with its own.

        What was recorded before is forgotten: it corrected the figures of another model.

        Args:
            model: as of the predictor.
            samples: the dataset.
            collator: as of the predictor.
            loss: as of the predictor.
        """
        sizes = _sizes_of(samples, collator)
        self._traced = self._trace_of(model, None, samples, sizes, collator, None, loss)
        self._sizes, self.has_model, self._has_said = sizes.by_task, True, False
        if self._factors:
            logger.info("what was recorded before a model was known is forgotten")
        self._factors.clear()
        self._errors.clear()

    def _trace_of(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        samples: Samples | None,
        sizes: TaskSizes | None,
        collator: Collate | None,
        make_batch: MakeBatch | None,
        loss: Loss,
    ) -> TracedModel:
        if sizes is None or samples is None:
            raise InputError(_NO_SAMPLES)
        if make_batch is None:
            if collator is None or isinstance(samples, Mapping):
                raise InputError(_NO_SAMPLES)
            make_batch = BatchTemplates(collator, samples, sizes)
        _check_device(model, self.device)
        return TracedModel(model, optimizer, make_batch, loss, sizes)

    @property
    def tasks(self) -> list[str]:
        """The tasks whose samples are known."""
        return sorted(self._sizes)

    @property
    def held_bytes(self) -> int:
        """What is held between training steps beside what is predicted; 0 without a model."""
        return self._memory(is_training=True).held_bytes

    @property
    def follows_model(self) -> bool:
        """Whether predictions are of the model at hand; it is traced now if it was not."""
        _ = self.held_bytes
        return self._traced is not None

    def size_of(self, task: str) -> TaskSize:
        """Return the largest sample of a task.

        Raises:
            InputError: there is no such task; the message names the nearest.
        """
        if task not in self._sizes:
            known = nearest(task, self._sizes, "Give samples={'T1': TaskSize(tokens=64, images=1)}.")
            raise InputError(Problem(f"no sample is of task '{task}'", advice=known))
        return self._sizes[task]

    def shape_of(self, tasks: Tasks, *, tokens: int | None = None, images: int | None = None) -> PaddedShape:
        """Return the padded batch of samples of these tasks.

        Args:
            tasks: of the samples.
            tokens: of the longest text; ``None``: as long as texts of these tasks may be.
            images: of the sample with most; ``None``: as many as samples of these tasks may have.

        Raises:
            InputError: there is no sample, or no such task.
        """
        counts = counted_tasks(tasks)
        sizes = [self.size_of(task) for task in counts]
        longest = max(size.tokens for size in sizes) if tokens is None else tokens
        most = max(size.images for size in sizes) if images is None else images
        return PaddedShape(sum(counts.values()), longest, most)

    def predict_sample_memory(self, task: str, is_training: bool = True) -> float:
        """Return the GiB that a batch of the largest sample of a task takes.

        Raises:
            InputError: there is no such task.
        """
        return self.predict_batch_memory([task], is_training)

    def predict_batch_memory(self, tasks: Tasks, is_training: bool = True) -> float:
        """Return the GiB that a batch takes: of the whole batch, whatever order its samples are in.

        Raises:
            InputError: there is no sample, or no such task.
        """
        return self.predict_bytes(self.shape_of(tasks), tasks, is_training=is_training) / GIB

    def predict_bytes(
        self, shape: PaddedShape, tasks: Tasks | None = None, *, quantile: float = 0.5, is_training: bool = True
    ) -> int:
        """Return what a batch stays within with a probability.

        Args:
            shape: of the batch, or anything with ``samples``, ``tokens`` and ``images`` (of the sample with most).
            tasks: of its samples; ``None``: of those that take most for their size.
            quantile: the probability.
            is_training: whether gradients are computed, and the optimizer steps.
        """
        if not 0 < quantile < 1:
            raise ValueError(f"a quantile lies between 0 and 1, got {quantile}")
        typical = self._typical_bytes(shape, is_training)
        factors = self._factors_of(is_training)
        shares = _shares(tasks) if tasks is not None else self._dearest(factors)
        own = self._memory(is_training=is_training).own_scale(typical)
        return round(typical * exp(factors.mean(shares) + student4(quantile) * factors.scale(shares, own)))

    def record_actual_memory(self, task: str, actual_memory_mib: float, samples: int | None = None) -> None:
        """Learn from the measured peak of a batch; see :meth:`record_batch`.

        Within a loop over batches that a collator of ours makes in this process, it is the peak of the batch that the
        loop holds. A peak far from what a traced model takes for its batch teaches nothing, and is warned of once.

        Args:
            task: of the samples.
            actual_memory_mib: binary megabytes, as ``torch.cuda.max_memory_allocated() / 2**20`` are.
            samples: of a batch of this task alone. ``None``: of the batch that was made last, whatever its tasks, where
                it is still held; else it is the peak of one sample.
        """
        held = newest_batch() if samples is None else None
        batch = _Recorded({task: 1 if samples is None else samples}) if held is None else _Recorded.of(held)
        if held is not None and not batch.tasks.keys() <= self._sizes.keys():
            self._ask(
                "%.0f MiB are not learned from: the batch that is held has other tasks (%s) than were predicted for",
                actual_memory_mib,
                ", ".join(batch.tasks),
            )
            return
        peak_bytes = round(actual_memory_mib * MIB)
        if samples is None and self._is_unlikely(peak_bytes, batch):
            self._ask(
                "%.0f MiB are not learned from: %s of %s would take %.1f MiB",
                actual_memory_mib,
                counted(sum(batch.tasks.values()), "sample"),
                " and ".join(batch.tasks),
                self.predict_bytes(self.shape_of(**vars(batch)), batch.tasks) / MIB,
            )
            return
        self.record_batch(batch.tasks, peak_bytes, tokens=batch.tokens, images=batch.images)

    def _ask(self, message: str, *values: Any) -> None:
        """Say once that a peak is not learned from, and how to tell of which batch it is."""
        if not self._has_asked:
            self._has_asked = True
            logger.warning(
                f"{message}. Of another batch, say how many samples it has: record_actual_memory(..., samples=16)",
                *values,
            )

    def _is_unlikely(self, peak_bytes: int, batch: "_Recorded") -> bool:
        """Say whether the traced model takes so much more for a batch, or less, that the peak must be another's."""
        if not self.follows_model:
            return False
        predicted = self.predict_bytes(self.shape_of(**vars(batch)), batch.tasks)
        taken = peak_bytes - (self.held_bytes if self.device.type == "cuda" else 0)
        is_one = sum(batch.tasks.values()) == 1  # of the CPU's own buffers a small batch may show little
        return taken > LIKELY * predicted or (not is_one and LIKELY * taken < predicted)

    def record_batch(
        self,
        tasks: Tasks,
        peak_bytes: int,
        *,
        tokens: int | None = None,
        images: int | None = None,
        held_bytes: int | None = None,
        is_training: bool = True,
    ) -> float | None:
        """Learn from the measured peak of a batch that ran whole: its mixture takes it, and no sample alone.

        Args:
            tasks: of its samples.
            peak_bytes: highest memory in use while it ran.
            tokens: of its longest text; ``None`` as in :meth:`shape_of`.
            images: of the sample with most.
            held_bytes: what was in use before it, and is part of the peak. ``None``: on CUDA weights and optimizer
                state, :attr:`held_bytes`; on the CPU nothing, where peaks count from what training began with.
            is_training: whether gradients were computed.

        Returns:
            The error of the prediction as it was before, as a share of what was measured; ``None`` where the batch took
            nothing that could be seen.
        """
        shape, shares = self.shape_of(tasks, tokens=tokens, images=images), _shares(tasks)
        if held_bytes is None:
            held_bytes = self.held_bytes if self.device.type == "cuda" else 0
        taken = peak_bytes - held_bytes
        if taken <= 0:
            return None
        error = abs(self.predict_bytes(shape, tasks, is_training=is_training) / taken - 1)
        for task, share in shares.items():
            self._errors[task].append((share, error))
        typical = self._typical_bytes(shape, is_training)
        own = self._memory(is_training=is_training).own_scale(typical)
        self._factors_of(is_training).record(shares, log(taken / typical), own)
        return error

    def get_calibration_accuracy(self) -> dict[str, float]:
        """Return the mean absolute relative error by task, of the last :data:`JUDGED` records in which it took part.

        It is an honest one: each record was predicted before it was learned from. In a mixture, the error is every
        task's, weighted by its share of the samples. Tasks that were never recorded are missing.
        """
        return {
            task: sum(share * error for share, error in errors) / sum(share for share, _ in errors)
            for task, errors in sorted(self._errors.items())
        }

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the bytes of padded training batches as they are known now, see :class:`PredictedCost`."""
        return self.as_cost().cost(samples, longest, images)

    def as_cost(self) -> PredictedCost:
        """Return what batches cost, as it is known now: what is recorded later changes it no more."""
        factors = self._factors_of(is_training=True)
        shares = self._dearest(factors)
        return PredictedCost(self._memory(is_training=True), exp(factors.mean(shares)), factors.scale(shares))

    def state_dict(self) -> dict[str, Any]:
        """Return what was recorded, for a checkpoint: plain values."""
        return {
            "has_model": self.has_model,
            "factors": {str(int(trains)): factors.state_dict() for trains, factors in self._factors.items()},
            "errors": {task: [list(error) for error in errors] for task, errors in self._errors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`, unless it corrects figures of another kind: published ones, or a model's."""
        if state.get("has_model") != self.has_model:
            return
        self._factors.clear()
        for trains, factors in state["factors"].items():
            self._factors_of(bool(int(trains))).load_state_dict(factors)
        self._errors.clear()
        for task, errors in state["errors"].items():
            self._errors[task].extend((float(share), float(error)) for share, error in errors)

    # --- within

    def _memory(self, *, is_training: bool) -> BatchMemory:
        """Return what batches take before any was measured; the model is traced now if it was not."""
        if self._traced is not None:
            try:
                _ = self._traced.memory(is_training=True)
                return self._traced.memory(is_training=is_training)
            except TraceError as error:
                self._traced, self._has_said = None, True
                logger.warning(
                    "the model cannot be traced (%s): what BrainVLM published of its own stands in until batches are "
                    "recorded",
                    error,
                )
        if not self._has_said:
            self._has_said = True
            logger.warning(
                "no model is at hand: memory is predicted from what BrainVLM published of its own (%.2f GiB a sample "
                "with one image in training), until batches are recorded. Give model= and samples= to have it traced.",
                published_gib(1),
            )
        return published_memory(is_training=is_training)

    def _typical_bytes(self, shape: PaddedShape, is_training: bool) -> float:
        return float(self._memory(is_training=is_training).typical_bytes(*shape))

    def _factors_of(self, is_training: bool) -> TaskFactors:
        if is_training not in self._factors:
            memory = self._memory(is_training=is_training)
            self._factors[is_training] = TaskFactors(memory.belief.ratio, memory.task_doubt)
        return self._factors[is_training]

    def _dearest(self, factors: TaskFactors) -> dict[str, float]:
        """Return a batch of the task that takes most for its size."""
        tasks = self.tasks
        return {max(tasks, key=lambda task: factors.mean({task: 1.0})): 1.0} if tasks else {}


_PUBLISHED_SIZES = {task: TaskSize(tokens=0, images=images) for task, images in PUBLISHED.items()}


def _sizes_of(samples: Samples, collator: Collate | None) -> TaskSizes:
    return TaskSizes.given(samples) if isinstance(samples, Mapping) else TaskSizes.of(samples, collator)


def counted_tasks(tasks: Tasks) -> dict[str, int]:
    """Return how many samples a batch has of each task.

    Raises:
        InputError: it has none.
    """
    if isinstance(tasks, str):
        raise InputError(f"tasks: a list is needed, one name a sample; did you mean ['{tasks}']?")
    counts = {task: int(count) for task, count in Counter(tasks).items() if count}
    if not counts or min(counts.values()) < 0:
        raise InputError("tasks: a batch holds one sample at least")
    return counts


def _shares(tasks: Tasks) -> dict[str, float]:
    counts = counted_tasks(tasks)
    return {task: count / sum(counts.values()) for task, count in counts.items()}


def _check_device(model: nn.Module, device: torch.device) -> None:
    lies_on = next((parameter.device for parameter in model.parameters()), device)
    if lies_on.type != device.type:
        logger.warning(
            "the model lies on %s, and training is to run on %s: what it takes is traced where it lies, so move it "
            "there before the first prediction",
            lies_on,
            device,
        )
