"""Where classes of memory-aware Trainers add what they keep of their own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from trainauto.core.plan import BatchShape
from trainauto.core.records import StepRecord
from trainauto.core.run_events import RunEnd
from trainauto.core.workload import Tensors
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.loss import Weighing
from trainauto.integrations.huggingface.own_stream import OwnStream
from trainauto.integrations.samples import NestedSamples
from trainauto.reporting.sinks import Sink
from trainauto.reporting.tensorboard import TensorBoard


class BatchParts(Protocol):
    """Divides and measures batches."""

    def part(self, tensors: Tensors, start: int, stop: int) -> Mapping[str, Any]:
        """Return samples ``start`` to ``stop``."""

    def shape(self, tensors: Tensors) -> BatchShape:
        """Say how many samples a batch has, and how long the longest is."""


class TrainingHooks:
    """What a memory-aware Trainer may override to keep figures of its own; here, none does anything.

    A loss that notes figures must not count an attempt that ran out of memory: what it notes is dropped in
    :meth:`forget_attempt`, and taken over in :meth:`step_recorded`.

    Attributes:
        weighing: what the loss of a batch is of those of its parts, where the class knows it; ``None`` finds it out by
            a few forward passes.
        loss_weighing: the same as a person says it: a name, or a function of a batch; see :class:`MemoryAwareTraining`.
        splittable: whether the losses of parts make up that of a batch; ``None`` finds it out.
        batch_parts: divides and measures batches of evaluations in which the first dimension of some tensor is not the
            sample; ``None`` where it is of all.
    """

    args: Any
    weighing: Weighing | None = None
    loss_weighing: str | Callable[[Any], float] | None = None
    splittable: bool | None = None
    batch_parts: BatchParts | None = None

    def own_workload(self, one: Mapping[str, Any]) -> NestedSamples | None:
        """Return how batches are divided, where the first dimension of some tensor is not the sample.

        Args:
            one: a batch of the largest sample alone; it is what memory is predicted by.
        """
        del one
        return None

    def data_checksums(self) -> Mapping[str, int]:
        """Return checksums of the training samples by what they are of: a resume among others is refused."""
        return {}

    def own_automations(self) -> Mapping[str, Any] | None:
        """Return what watches the run, by name, as under ``training_automations`` of an option file."""
        section: Mapping[str, Any] | None = own_argument(self.args, "training_automations")
        return section

    def ending(self) -> RunEnd | None:
        """Return how the training has ended, where the class knows it better: its progress is filled in."""
        return None

    def largest_sample(self) -> int | None:
        """Return the number of the sample that takes most memory; ``None`` where the longest row is taken for it."""
        return None

    def own_stream(self, seed: int, step_samples: int | None) -> OwnStream | None:
        """Return what batches are drawn by, in place of what the arguments say; ``None`` leaves it to these.

        Args:
            seed: decides everything random.
            step_samples: samples of a process in every step, where accumulation fixes them: they are then counted.
        """
        del seed, step_samples
        return None

    def prepare_loss(self) -> None:
        """Make ready what the loss needs: called before a run's loss is first computed, or traced."""

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`own_state` returned, from the checkpoint that is resumed."""

    def own_state(self) -> dict[str, Any]:
        """Return what a checkpoint is to hold: tensors, numbers, texts, and containers of them."""
        return {}

    def forget_attempt(self) -> None:
        """Drop what the loss noted of the step on its way: it ran out of memory, and begins again in smaller parts."""

    def takes_full_memory(self) -> bool:
        """Whether the step on its way takes as much memory as any of its size; others do not lower what is expected."""
        return True

    def step_recorded(self, record: StepRecord, *, skipped: bool) -> Mapping[str, tuple[float, int]]:  # noqa: ARG002
        """Take over what the loss noted of a step, whose optimizer has stepped.

        Args:
            record: of the step.
            skipped: whether float16 gradients overflowed, so that the weights were left alone.

        Returns:
            The mean loss of each task, and of how many samples it is the mean.
        """
        return {}

    def own_sinks(self, curves: TensorBoard | None) -> Sequence[Sink]:
        """Return where steps are reported beside the run's own folder; the first process asks when a run begins.

        Args:
            curves: what writes the event files of the run; ``None`` where nothing does.
        """
        del curves
        return ()
