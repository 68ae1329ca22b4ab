"""Evaluation in batches that memory decides, apart from those of training."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers.trainer_pt_utils import nested_concat

from trainauto.core.process import Limited, without_memory_limit
from trainauto.core.records import PeakReading, ValidationRecord
from trainauto.core.units import MIB
from trainauto.core.words import counted
from trainauto.engine.run_errors import NothingFitsError
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.directions import Directions
from trainauto.integrations.huggingface.evaluation_batches import EvaluationBatches
from trainauto.integrations.huggingface.loss import TrainerLoss, Weighing, has_counted_labels
from trainauto.integrations.structure import Structure, leaves_of
from trainauto.memory.cost.measured_bound import MeasuredBound
from trainauto.memory.monitor import onednn
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.oom import in_words, is_out_of_memory, shortage_in
from trainauto.memory.monitor.release import release_memory

logger = logging.getLogger(__name__)

Prediction = tuple[Any, Any, Any]
"""Loss, logits and labels of a batch, as ``prediction_step`` returns them; each may be ``None``."""

Predict = Callable[[Any], Prediction]


class EvaluationMemory:
    """How large the batches of a Trainer's evaluations are; it is kept from one to the next.

    They begin with ``per_device_eval_batch_size``. Where ``eval_max_batch_size`` allows more, and memory is limited,
    each is as large as peaks so far say will meet the target. One that runs out of memory runs again in halves, and
    later ones are smaller; the batches of training stay as they are.

    Args:
        trainer: whose.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._given = (0, 0)
        self._bound: MeasuredBound | None = None
        self._most = self._size = self._widest = 1
        self._read_sizes()
        self._weighted = [0.0, 0.0]
        self._largest = self._ooms = 0
        self._peak: PeakReading | None = None
        self._held_bytes: int | None = None
        self._added_bytes = 0
        self._start = 0.0
        self._limited: Limited = nullcontext
        self._losses_due = 0

    def loader(self, dataset: Any, description: str) -> EvaluationBatches:
        """Return batches of a dataset, in its order, each as large as is known to fit when it is drawn."""
        return EvaluationBatches(self._trainer, dataset, description, lambda: self.size)

    @property
    def size(self) -> int:
        """Samples of the next batch."""
        self._read_sizes()
        return self._size

    def _read_sizes(self) -> None:
        """Begin anew where the sizes that are asked for are others than before."""
        args = self._trainer.args
        start: int = args.per_device_eval_batch_size
        most = max(start, own_argument(args, "eval_max_batch_size") or start)
        if (start, most) != self._given:
            self._given = (start, most)
            self._size, self._most, self._bound = start, most, None

    def begin(self) -> None:
        """Begin an evaluation."""
        self._weighted = [0.0, 0.0]
        self._largest = self._ooms = 0
        self._peak, self._held_bytes, self._added_bytes = None, None, 0
        self._start = time.perf_counter()

    @contextmanager
    def whole_loop(self) -> Iterator[None]:
        """Have the Trainer's loop keep a loss for each sample, and only the network be under the memory budget.

        The Trainer repeats the loss of a batch as often as ``per_device_eval_batch_size`` says, and has it gathered
        first of all that a batch gives. One process has nothing to gather.
        """
        trainer = self._trainer
        given, trainer.gather_function = trainer.gather_function, self._gathered
        try:
            with without_memory_limit() as self._limited:
                yield
        finally:
            self._limited, self._losses_due = nullcontext, 0
            if trainer.gather_function == self._gathered:
                trainer.gather_function = given

    @contextmanager
    def naming_shortage(self) -> Iterator[None]:
        """Say what to do where memory runs out beside the forward passes, which no smaller batch would cure.

        Raises:
            NothingFitsError: it does.
        """
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            message = in_words(shortage_in(error))
        else:
            return
        raise NothingFitsError(
            f"memory ran out in the evaluation beside its forward passes, in what is kept of them or in metrics "
            f"({message})\n  What was trained is kept up to the last checkpoint. Resume with "
            "eval_accumulation_steps=1, prediction_loss_only=True or a smaller eval_dataset."
        )

    def _gathered(self, given: Any) -> Any:
        count, self._losses_due = self._losses_due, 0
        return given[:1].repeat(count) if count else given

    def end(self, prefix: str, metrics: dict[str, float]) -> None:
        """Correct the loss to the mean over what it counts, whatever the batches were, and add what they took."""
        loss, weight = self._weighted
        if weight and f"{prefix}_loss" in metrics:
            metrics[f"{prefix}_loss"] = loss / weight
        metrics[f"{prefix}_batch_size"] = self._largest
        if self._held_bytes is not None:
            metrics[f"{prefix}_peak_memory_mib"] = round(self._added_bytes / MIB, 1)
        # Even where it is 0: a model card has a column for each figure of the last evaluation.
        metrics[f"{prefix}_out_of_memory"] = self._ooms
        release_memory(self._trainer.args.device)

    def record(self, step: int, prefix: str, metrics: dict[str, float], samples: int) -> ValidationRecord:
        """Return what a run directory gets of an evaluation of so many samples."""
        figures = {
            name.removeprefix(f"{prefix}_"): float(value)
            for name, value in metrics.items()
            if isinstance(value, int | float) and name.startswith(f"{prefix}_")
        }
        own = {"batch_size", "peak_memory_mib", "out_of_memory", "model_preparation_time"}
        kept = {name: value for name, value in figures.items() if name not in own}
        seconds = time.perf_counter() - self._start
        known = Directions(self._trainer.args)
        higher = {name: better for name in kept if (better := known.of(name)) is not None}
        seen = counted(samples, "sample")
        return ValidationRecord(step, prefix, kept, {}, (), seconds, 0, higher, self._peak, self._ooms, seen=seen)

    def predict(self, inputs: Any, predict: Predict, meter: MemoryMeter) -> Prediction:
        """Run a batch; where it does not fit, in halves, and those in halves.

        Raises:
            NothingFitsError: a single sample does not fit.
        """
        count = _samples_in(inputs)
        self._widest = max(self._widest, self._width_of(inputs))
        self._largest = max(self._largest, count)
        with self._limited():
            held_bytes = meter.now_bytes()
            with meter.window() as window:
                prediction = self._in_halves(inputs, count, predict)
        self._losses_due = 0 if prediction[0] is None else count
        self._learn(count, window.reading, held_bytes)
        return prediction

    def _in_halves(self, inputs: Any, count: int, predict: Predict) -> Prediction:
        try:
            prediction = predict(inputs)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            message = in_words(str(error))
        else:
            self._weigh(prediction[0], inputs, count)
            return prediction
        # Outside the handler: the error's traceback holds the tensors of the failed attempt.
        release_memory(self._trainer.args.device)
        if count <= 1:
            raise NothingFitsError(_nothing_smaller(message))
        self._fail(count, message)
        middle = (count + 1) // 2
        halves = [self._part(inputs, count, 0, middle), self._part(inputs, count, middle, count)]
        first, second = (self._in_halves(half, _samples_in(half), predict) for half in halves)
        return _joined(first, second)

    def _part(self, inputs: Any, count: int, start: int, stop: int) -> Any:
        parts = self._trainer.batch_parts
        return _part(inputs, count, start, stop) if parts is None else parts.part(inputs, start, stop)

    def _width_of(self, inputs: Any) -> int:
        parts = self._trainer.batch_parts
        return _width_of(inputs) if parts is None else parts.shape(inputs).extent

    def _fail(self, count: int, message: str) -> None:
        self._ooms += 1
        self._bound_by(count).fail(count * self._widest)
        self._size = max(1, min(self._size, (count + 1) // 2))
        self._most = min(self._most, max(1, count - 1))
        logger.warning(
            "out of memory in evaluation with %s (%s): they run again in halves, later ones %d at a time",
            counted(count, "sample"),
            message,
            self._size,
        )

    def _weigh(self, loss: Any, inputs: Any, count: int) -> None:
        """Count a loss by the labels it is a mean over; by its samples where they have none, or weigh alike."""
        if not isinstance(loss, Tensor):
            return
        weight = self._weight_of(inputs, count)
        if not weight or (self._trainer.args.logging_nan_inf_filter and not bool(torch.isfinite(loss).all())):
            return
        self._weighted[0] += float(loss.mean()) * weight
        self._weighted[1] += weight

    def _weight_of(self, inputs: Any, count: int) -> float:
        memory = self._trainer.memory
        if callable(self._trainer.loss_weighing):
            return TrainerLoss(self._trainer).declared_weight(inputs)
        if self._trainer.weighing is Weighing.SAMPLES:
            return count
        if not isinstance(inputs, Mapping) or not has_counted_labels(inputs):
            return count
        if memory is not None and memory.training is not None and not memory.loss.weighs_labels:
            return count
        return TrainerLoss(self._trainer).labels_in(inputs)

    def _bound_by(self, count: int) -> MeasuredBound:
        """Return what bounds batches; at first, one of this many samples is as large as they may be."""
        if self._bound is None:
            self._bound = MeasuredBound(max(count, self._size) * self._widest, fills=True)
        return self._bound

    def _learn(self, count: int, peak: PeakReading | None, held_bytes: int) -> None:
        if peak is None:
            return
        if self._held_bytes is None:
            self._held_bytes = held_bytes
        self._added_bytes = max(self._added_bytes, peak.allocated - self._held_bytes)
        # Of an evaluation outside of training the peak is that of the process, beside which a run's would look small.
        is_of_run = self._trainer.memory is not None and self._trainer.memory.meter is not None
        if is_of_run and (self._peak is None or peak.allocated > self._peak.allocated):
            self._peak = peak
        if peak.limit is None or self._ooms:
            return
        target = float(self._trainer.memory_target)
        # What is predicted is kept until the end, so that the room for later batches becomes less.
        bound = self._bound_by(count)
        bound.set_target(int(peak.limit * target) - held_bytes)
        bound.observe(count * self._widest, peak.allocated - held_bytes)
        self._size = max(1, min(self._most, bound.value // self._widest))


def _nothing_smaller(message: str) -> str:
    advice = "Resume with more memory."
    if onednn.is_left():
        advice = "Resume: a new process has oneDNN back, without which this one needs more; or give it more memory."
    return (
        f"one sample of the evaluation does not fit into the memory that is left ({message})\n"
        f"  What was trained is kept up to the last checkpoint. {advice}"
    )


def _samples_in(inputs: Any) -> int:
    return next((len(leaf) for leaf in leaves_of(inputs).values() if isinstance(leaf, Tensor) and leaf.ndim), 1)


def _width_of(inputs: Any) -> int:
    """Return the tokens of a row; 1 where samples are no rows."""
    rows = (leaf for leaf in leaves_of(inputs).values() if isinstance(leaf, Tensor) and leaf.ndim == 2)
    return max((row.shape[1] for row in rows), default=1)


def _part(inputs: Any, count: int, start: int, stop: int) -> Any:
    leaves = {name: leaf[start:stop] if _is_divided(leaf, count) else leaf for name, leaf in leaves_of(inputs).items()}
    return Structure.of(inputs).rebuild(leaves)


def _is_divided(leaf: Any, count: int) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.ndim > 0 and len(leaf) == count
    return isinstance(leaf, list | tuple) and len(leaf) == count


def _joined(first: Prediction, second: Prediction) -> Prediction:
    """Return what two halves predict as one; its loss is counted by then, and only has to be one."""
    loss = None if first[0] is None else torch.stack([first[0].mean(), second[0].mean()]).mean()
    rest = (
        None if mine is None else nested_concat(mine, theirs, padding_index=-100)
        for mine, theirs in zip(first[1:], second[1:], strict=True)
    )
    logits, labels = rest
    return loss, logits, labels
