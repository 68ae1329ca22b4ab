"""The loss of a Trainer as the engine minimises losses, and what those of parts are weighted by."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.value_copies import copied
from trainauto.integrations.huggingface.rehearsal import rehearsed
from trainauto.integrations.map_samples import MapSamples
from trainauto.integrations.samples import NestedSamples
from trainauto.integrations.structure import Structure, leaves_of
from trainauto.memory.monitor.oom import is_out_of_memory

logger = logging.getLogger(__name__)

TOLERANCE = 0.05
"""How far a weighted sum over parts may lie from the loss of the whole: half precision and auxiliary losses do not
agree to the last bit, and the wrong weights are off by more."""

SIGNIFICANT = 1e-3
"""Differences between two ways of weighting below this say nothing."""

LOOKED_AT = 3
"""Samples by which is found out how losses of parts make up that of the whole."""

MOST_SEARCHED = 64
"""Samples among which those with labels are looked for: each is read before the first step."""


class Weighing(Enum):
    """What the loss of a batch is, of the losses of its parts."""

    SUM = "the sum over its parts, since the model divides by num_items_in_batch"
    ITEMS = "the mean over its parts, weighted by their labels"
    SAMPLES = "the mean over its parts, weighted by their samples"
    COUPLED = "no mean over its parts: they are coupled"


class TrainerLoss:
    """``compute_loss`` of a Trainer, as a loss of a model and a batch.

    Attributes:
        weighing: of parts.
        step_items: labels of the whole step, where losses of parts are sums over all of it.
        is_rehearsal: training has not begun: what losses note is forgotten.

    Args:
        trainer: whose.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.weighing = Weighing.SAMPLES
        self.step_items: Tensor | int | None = None
        self.is_rehearsal = False

    def __call__(self, model: Any, inputs: Any) -> Tensor:
        """Return the loss of a part of a batch: of the step's sum where it is one, else its own mean."""
        if self.weighing is not Weighing.SUM:
            return self.of(model, inputs, None)
        return self.of(model, inputs, self.items_here(inputs) if self.step_items is None else self.step_items)

    def of(self, model: Any, inputs: Any, items: Tensor | int | None) -> Tensor:
        """Return the loss of a batch on the model's device, which the Trainer may mean over ``items`` labels.

        What ``compute_loss`` puts into its inputs is its own affair (TRL adds flags): it gets a copy.
        """
        trainer = self._trainer
        with rehearsed(trainer) if self.is_rehearsal else nullcontext(), trainer.compute_loss_context_manager():
            loss: Tensor = trainer.compute_loss(model, copy(inputs), num_items_in_batch=items)
        return loss

    def items_in(self, inputs: Any) -> Tensor | int | None:
        """Return the labels of a step, as the Trainer counts them on all ranks; ``None`` where it does not."""
        # Among processes the Trainer calls the device "cpu:0", which traces tell from "cpu".
        device = next(leaf.device for leaf in leaves_of(inputs).values() if isinstance(leaf, Tensor))
        count: Tensor | int | None = self._trainer._get_num_items_in_batch([inputs], device)
        return count

    def items_here(self, inputs: Any) -> Tensor | int | None:
        """Return the labels of a batch on this rank alone, which no other has to ask for."""
        args = self._trainer.args
        given, args.average_tokens_across_devices = args.average_tokens_across_devices, False
        try:
            return self.items_in(inputs)
        finally:
            args.average_tokens_across_devices = given

    @property
    def weighs_labels(self) -> bool:
        """Whether the loss of a batch is a mean over its labels, as far as is known."""
        return self.weighing in (Weighing.SUM, Weighing.ITEMS)

    def weigh_by(self, weighing: Weighing) -> Callable[[Any], int] | None:
        """Return what parts weigh; ``None`` for their samples."""
        self.weighing = weighing
        if weighing is Weighing.SUM:
            return _alike
        return self.labels_in if weighing is Weighing.ITEMS else None

    def labels_in(self, batch: Mapping[str, Any]) -> int:
        """Return the labels that a loss is a mean over; of causal models the first place of a row has none."""
        labels = batch.get("shift_labels")
        if labels is None:
            labels = batch["labels"]
            if getattr(self._trainer, "_loss_shifts_labels", False):
                labels = labels[..., 1:]
        return int(labels.ne(-100).sum())


def _alike(_batch: object) -> int:
    return 1


def telling_samples(loss: TrainerLoss, samples: MapSamples, structure: Structure) -> Mapping[str, Any]:
    """Return a batch of the first samples; where none of them has labels, of the next that have.

    A mean over no labels is not a number, and says nothing of what parts weigh.
    """
    first = samples.some(range(min(LOOKED_AT, len(samples))))
    if _may_tell(loss, structure.rebuild(first)):
        return first
    others = range(LOOKED_AT, min(len(samples), MOST_SEARCHED))
    chosen = [index for index in others if _may_tell(loss, structure.rebuild(samples.some([index])))][:LOOKED_AT]
    return samples.some(chosen) if chosen else first


def _may_tell(loss: TrainerLoss, batch: Any) -> bool:
    return not has_counted_labels(batch) or loss.labels_in(batch) > 0


def learn_weighing(
    loss: TrainerLoss, module: nn.Module, workload: NestedSamples, structure: Structure, leaves: Mapping[str, Any]
) -> Weighing:
    """Find out how the losses of parts make up that of the whole, by a few forward passes without gradients.

    What a loss does with ``num_items_in_batch`` cannot be seen from outside: models for regression take it, and take no
    notice.

    Args:
        loss: of the Trainer.
        module: its model; modes, buffers and random generators are as before.
        workload: divides batches.
        structure: puts them together.
        leaves: of some samples, on the device.
    """
    count = workload.template.samples_of(leaves)
    if count < 2:
        return _declared(loss, structure.rebuild(leaves))
    cuts = [(0, count), (0, 1), (1, count)]
    was_training = module.training
    snapshot = StepSnapshot([module], next(module.parameters()).device)
    snapshot.take()
    module.eval()  # dropout would hide what is to be seen
    try:
        batches = [partial(_rebuilt, structure, workload, leaves, cut) for cut in cuts]
        with torch.no_grad():
            return _compared(loss, module, batches, count, snapshot.restore)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return _declared(loss, structure.rebuild(leaves))
    finally:
        module.train(was_training)
        snapshot.restore()


def _compared(
    loss: TrainerLoss,
    module: nn.Module,
    batches: Sequence[Callable[[], Any]],
    samples: int,
    restore: Callable[[], None],
) -> Weighing:
    """Return which of the ways gives the loss of the first batch from those of the two others."""
    errors: dict[Weighing, float] = {}
    items = loss.items_here(batches[0]())
    if items is not None:
        total, *sums = (float(loss.of(module, batch(), items)) for batch in batches)
        errors[Weighing.SUM] = abs(sum(sums) - total)
        if errors[Weighing.SUM] <= SIGNIFICANT * abs(total):
            return Weighing.SUM
    whole, *means = (float(loss.of(module, batch(), None)) for batch in batches)
    if abs(float(loss.of(module, batches[0](), None)) - whole) > SIGNIFICANT * abs(whole):
        return _of_noisy(loss, module, batches[0], items, restore)
    if has_counted_labels(batches[0]()):
        errors[Weighing.ITEMS] = abs(_mean(means, [loss.labels_in(batch()) for batch in batches[1:]]) - whole)
    errors[Weighing.SAMPLES] = abs(_mean(means, [1, samples - 1]) - whole)
    errors = {weighing: error for weighing, error in errors.items() if math.isfinite(error)}
    size = max(abs(whole), 1e-12)
    least = min(errors.values(), default=math.inf)
    if not math.isfinite(whole):
        return _declared(loss, batches[0]())
    if not least <= TOLERANCE * size:
        return Weighing.COUPLED
    return next(weighing for weighing, error in errors.items() if error <= least + SIGNIFICANT * size)


def _of_noisy(
    loss: TrainerLoss,
    module: nn.Module,
    batch: Callable[[], Any],
    items: Tensor | int | None,
    restore: Callable[[], None],
) -> Weighing:
    """Return the weighing of a loss that draws noise: parts drawn anew cannot be compared with the whole.

    Whether it divides by ``num_items_in_batch`` shows with the same noise twice; else each sample counts as much.
    """
    if items is not None:
        values = []
        for given in (items, items * 2):
            restore()
            values.append(float(loss.of(module, batch(), given)))
        if abs(values[0] - 2 * values[1]) <= TOLERANCE * abs(values[0]):
            return Weighing.SUM
    return Weighing.SAMPLES


def _rebuilt(structure: Structure, workload: NestedSamples, leaves: Mapping[str, Any], cut: tuple[int, int]) -> Any:
    # Models may change their inputs in place: each loss gets its own.
    return structure.rebuild({name: copied(leaf) for name, leaf in workload.part(leaves, *cut).items()})


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """Return a weighted mean; what weighs nothing may be no number."""
    terms = (value * weight for value, weight in zip(values, weights, strict=True) if weight)
    return sum(terms) / max(1, sum(weights))


def has_counted_labels(batch: Any) -> bool:
    """Whether a batch has labels of which a loss may leave some out."""
    labels = batch.get("labels")
    return isinstance(labels, Tensor) and not labels.is_floating_point()


def _declared(loss: TrainerLoss, batch: Any) -> Weighing:
    """Return what the Trainer itself takes for granted, where nothing could be compared."""
    return Weighing.SUM if loss.items_here(batch) is not None else Weighing.SAMPLES
