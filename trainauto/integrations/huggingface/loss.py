"""The loss of a Trainer as the engine minimises losses, and what those of parts are weighted by."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.integrations.huggingface.divisors import divisor_of
from trainauto.integrations.huggingface.rehearsal import rehearsed
from trainauto.integrations.structure import leaves_of


class Weighing(Enum):
    """What the loss of a batch is, of the losses of its parts."""

    SUM = "the sum over its parts, since the model divides by num_items_in_batch"
    ITEMS = "the mean over its parts, weighted by their labels"
    SAMPLES = "the mean over its parts, weighted by their samples"
    DIVISOR = "the mean over its parts, weighted by what the loss of each is divided by"
    DECLARED = "the mean over its parts, weighted as loss_weighing says"
    COUPLED = "no mean over its parts: they are coupled"


NAMES = {"samples": Weighing.SAMPLES, "labels": Weighing.ITEMS, "sum": Weighing.SUM}
"""What ``loss_weighing`` may be called."""


def declared_weighing(loss_weighing: Any, splittable: Any) -> Weighing | None:
    """Return what a person says of the loss; ``None`` where nothing was said.

    Raises:
        InputError: what was given is none of what can be said.
    """
    if splittable is not None and not isinstance(splittable, bool):
        raise InputError(f"splittable is True, False or None, got {splittable!r}")
    if splittable is False and loss_weighing is not None:
        raise InputError(
            Problem(
                "splittable=False says that losses of parts do not make up that of a batch, and loss_weighing says how "
                "they do",
                advice="Leave one of them out.",
            )
        )
    if splittable is False:
        return Weighing.COUPLED
    if loss_weighing is None:
        return None
    if callable(loss_weighing):
        return Weighing.DECLARED
    if not isinstance(loss_weighing, str) or loss_weighing not in NAMES:
        known = ", ".join(repr(name) for name in NAMES)
        raise InputError(
            Problem(
                f"loss_weighing is {loss_weighing!r}: it is one of {known}, or a function of a batch that returns what "
                "its loss is divided by",
                advice=nearest(str(loss_weighing), list(NAMES)),
            )
        )
    return NAMES[loss_weighing]


class TrainerLoss:
    """``compute_loss`` of a Trainer, as a loss of a model and a batch.

    Where parts weigh what only their own losses tell, :meth:`__call__` multiplies the loss of each by its weight over
    the first one's, and :meth:`share_of` says what gradients of all are multiplied by in the end.

    Attributes:
        weighing: of parts.
        doubt: what is not sure about that, in words; empty where nothing is.
        weighs_labels: whether the loss of a batch is a mean over its labels, as far as is known.
        step_items: labels of the whole step, where losses of parts are sums over all of it.
        is_rehearsal: training has not begun: what losses note is forgotten.

    Args:
        trainer: whose.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.weighing = Weighing.SAMPLES
        self.doubt = ""
        self.weighs_labels = False
        self.step_items: Tensor | int | None = None
        self.is_rehearsal = False
        self._weights: list[float | None] = []

    def __call__(self, model: Any, inputs: Any) -> Tensor:
        """Return the loss of a part of a batch: of the step's sum where it is one, else its own mean.

        Raises:
            InputError: ``loss_weighing`` returns no weight.
        """
        if self.weighing is Weighing.SUM:
            return self.of(model, inputs, self.items_here(inputs) if self.step_items is None else self.step_items)
        weight = self.declared_weight(inputs) if self.weighing is Weighing.DECLARED else None
        loss = self.of(model, inputs, None)
        if not self.weighs_by_itself or self.is_rehearsal or loss.grad_fn is None:
            return loss
        return self._weighed(loss, divisor_of(loss) if weight is None else weight)

    def _weighed(self, loss: Tensor, weight: float | None) -> Tensor:
        self._weights.append(weight)
        if None in self._weights and (len(self._weights) > 1 or self._trainer.args.world_size > 1):
            raise InputError(
                Problem(
                    "the loss is computed in another way than before the first step: what it is divided by cannot be "
                    "read any more, and so cannot what parts of a batch weigh",
                    advice="Say it with loss_weighing= of the Trainer (docs/huggingface.md).",
                )
            )
        if weight == 0:  # a mean over nothing is no number
            return torch.zeros_like(loss, requires_grad=True)
        return loss if weight in (None, self._unit) else loss * (weight / self._unit)

    @property
    def _unit(self) -> float:
        """Weight that losses of parts are counted in: that of the first, so that a step of one part is as it is."""
        return next((weight for weight in self._weights if weight), 1.0)

    @property
    def weighs_by_itself(self) -> bool:
        """Whether what parts weigh is known only while their losses are computed."""
        return self.weighing in (Weighing.DIVISOR, Weighing.DECLARED)

    def tells_shares(self, world_size: int) -> bool:
        """Say whether it is known what each part of a step has been divided by, so that gradients can be compared.

        Among ranks, labels of the step are those of all, and the Trainer may mean over its own alone.
        """
        return not self.weighs_by_itself and (self.weighing is not Weighing.SUM or world_size == 1)

    def share_of_labels(self, inputs: Any) -> float:
        """Return which share of the step's labels a part has, where losses of parts are sums over all of it."""
        return float(self.items_here(inputs) or 0) / float(self.step_items or 1)

    def forget_parts(self) -> None:
        """Begin a step, or another attempt at it: no part has been weighed."""
        self._weights.clear()

    @property
    def weight_of_parts(self) -> float:
        """What the parts weigh that were computed since :meth:`forget_parts`."""
        return math.fsum(1.0 if weight is None else weight for weight in self._weights)

    def share_of(self, total: float) -> float:
        """Return what the sum over these parts is multiplied by, to be their share of a step that weighs ``total``."""
        return self._unit / total if total else 1.0

    def declared_weight(self, inputs: Any) -> float:
        """Return what ``loss_weighing`` says of a batch.

        Raises:
            InputError: that is no number of 0 or more.
        """
        given = self._trainer.loss_weighing(copy(inputs))
        try:
            weight = float(given.detach() if isinstance(given, Tensor) else given)
        except (TypeError, ValueError, RuntimeError):
            weight = math.nan
        if not (math.isfinite(weight) and weight >= 0):
            kind = f"a tensor of shape {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)
            raise InputError(f"loss_weighing returns what a batch weighs, one number of 0 or more, and not {kind}")
        return weight

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

    def weigh_by(self, weighing: Weighing) -> Callable[[Any], int] | None:
        """Return what parts weigh; ``None`` for their samples."""
        self.weighing = weighing
        self.weighs_labels = weighing in (Weighing.SUM, Weighing.ITEMS)
        if weighing is Weighing.SUM or self.weighs_by_itself:
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


def has_counted_labels(batch: Any) -> bool:
    """Whether a batch has labels of which a loss may leave some out."""
    labels = batch.get("labels")
    return isinstance(labels, Tensor) and not labels.is_floating_point()
