"""What a model minimises, one optimizer at a time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from trainauto.core.records import StepRecord

LossTerms = Mapping[str, Tensor]
"""Named scalars; the pass minimises their sum. Each is a mean over the samples of the micro-batch."""

WEIGHT = "_weight"
"""Ending of the name of a term without gradients that says what another one weighs in this step."""

MicroBatch = dict[str, Tensor]
"""Some samples of a batch, on the device: the same names, a shorter first dimension."""


@runtime_checkable
class ChangesOncePerPass(Protocol):
    """A module that changes itself in training: once a pass, and not once for each part of a batch.

    The engine tells all such modules of its networks where a pass begins and ends, and puts their buffers back before
    it begins again.
    """

    def begin_pass(self) -> None:
        """Change now, and in no forward pass until :meth:`end_pass`."""

    def end_pass(self) -> None:
        """Change in every forward pass again."""


class Gathering(Protocol):
    """What of the processes that train together notes need.

    Attributes:
        world_size: how many there are.
    """

    world_size: int

    def gather(self, payload: bytes) -> list[bytes]:
        """Return what each rank gave, on the first; nothing on the others."""

    def broadcast_object(self, make: Callable[[], Any]) -> Any:
        """Return what the first rank makes, as JSON gives it back."""


class PassNotes(Protocol):
    """What the loss of a pass notes beside what it minimises, over the parts that the pass runs in.

    GradNorm needs this: it notes losses and gradients by task, and weighs tasks by them afterwards.
    """

    def begin(self) -> None:
        """Begin a pass, and forget what was noted since the last step: that attempt did not fit, or was a trial."""

    def task_losses(self) -> Mapping[str, tuple[float, int]]:
        """Return, by task, the mean loss of its samples in the pass that has run, and how many these are; here."""

    def recorded(self, record: StepRecord, ranks: "Gathering") -> None:
        """Take in the step as all ranks have trained it; what is learned from it is learned here, the same on each.

        Args:
            record: of the step.
            ranks: who trained it: all of them are here.
        """


@dataclass(frozen=True)
class Objective:
    """One loss, one optimizer: the generator's, then the discriminator's.

    The engine runs ``loss`` on micro-batches, weights each by its share of the samples, clips, and steps the optimizer.
    A loss may add tensors to its micro-batch under new names (an output, detached): the passes after it find those of
    all samples in theirs, whatever pieces either runs in. A failed attempt hands nothing on. What a loss changes
    in place later passes find changed, and a pass that runs again finds as it was.

    Attributes:
        name: key of its rate and gradient norm in the records.
        optimizer: whose parameters this pass changes.
        loss: maps a micro-batch to its loss terms, with gradients.
        splittable: whether the loss of a batch equals the weighted mean over its parts. False for losses that couple
            samples (relativistic losses, BatchNorm).
        scaler: loss scaling for fp16; ``None`` for other precisions.
        without_sum: makes a context in which backward passes keep gradients to this rank, where they are otherwise
            summed over ranks as they go; entered for all micro-batches but the last.
        parameters: what the optimizer steps, in the order in which norms add them up; empty for that of its groups.
        notes: what the loss notes of its passes; ``None`` where it keeps nothing.
    """

    name: str
    optimizer: Optimizer
    loss: Callable[[MicroBatch], LossTerms]
    splittable: bool = True
    scaler: GradScaler | None = None
    without_sum: Callable[[], AbstractContextManager[None]] | None = None
    parameters: Sequence[nn.Parameter] = ()
    notes: PassNotes | None = None


def parameters_of(objective: Objective) -> list[nn.Parameter]:
    """Return the weights that a pass changes."""
    return list(objective.parameters) or [
        parameter for group in objective.optimizer.param_groups for parameter in group["params"]
    ]
