"""What became of a batch in a loop of one's own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from trainauto.core.batch import Batch
from trainauto.core.decisions import Decision
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.core.records import StepRecord
from trainauto.engine.run_errors import OptimizerOutOfMemoryError


@dataclass(frozen=True)
class LoopStep:
    """What became of a batch.

    Attributes:
        trained: whether it was trained. One that did not fit in any pieces comes again in smaller batches, and has
            changed nothing, unless an objective before the one that did not fit had stepped: that one's step stays. One
            whose samples all weigh 0 counts its ``samples``, has no losses, and changes no weights either.
        losses: each term, a mean over the samples of the step, weighted as ``weigh`` says; keys as the loss names them.
        grad_norms: of each objective, before clipping.
        samples: of the batch; 0 where they come again.
        plan: it was trained under, or came under.
        skipped: objectives whose weights were left alone, since gradients of fp16 had overflowed.
        pieces: parts in which it ran, by objective, where those are not what the plan says.
        out_of_memory: times it ran out of memory on the way.
        peak_bytes: most memory in use while it ran, counted as the limit is; ``None`` where the platform cannot tell.
        decisions: what was decided since the last trained step, with reasons.
    """

    trained: bool
    losses: Mapping[str, float]
    grad_norms: Mapping[str, float]
    samples: int
    plan: Plan
    skipped: tuple[str, ...]
    pieces: Mapping[str, int]
    out_of_memory: int
    peak_bytes: int | None
    decisions: tuple[Decision, ...]

    @classmethod
    def of(cls, record: StepRecord, decisions: tuple[Decision, ...], told: int = 0) -> "LoopStep":
        """Return what a record says, with what was decided.

        Args:
            record: counts failures of batches that went back before it, too.
            decisions: since the last record.
            told: how many of those there were; each was told of when it happened.
        """
        return cls(
            trained=bool(record.losses),
            losses=record.losses,
            grad_norms=record.grad_norms,
            samples=record.shape.samples,
            plan=record.plan,
            skipped=record.skipped,
            pieces={name: split.micro_batches for name, split in record.pieces.items()},
            out_of_memory=record.ooms - told,
            peak_bytes=record.peak.allocated if record.peak is not None else None,
            decisions=decisions,
        )

    @classmethod
    def not_trained(cls, batch: Batch, out_of_memory: int = 1) -> "LoopStep":
        """Return what there is to say of a batch that did not fit, or was not to be trained."""
        return cls(False, {}, {}, 0, batch.plan, (), {}, out_of_memory, None, ())


GO_BACK_TO_ONE = (
    "Save nothing of this model. Load your last checkpoint: model, optimizers and load_state_dict of a new loop."
)


class HalfSteps:
    """Whether an optimizer of a loop ran out of memory in its step: some weights may have moved, others not."""

    _has_happened = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note it of a step inside, and refuse one after it.

        Raises:
            InputError: it has happened before.
            OptimizerOutOfMemoryError: it happens now; with what to do.
        """
        self.refuse()
        try:
            yield
        except OptimizerOutOfMemoryError as error:
            self._has_happened = True
            error.say_more(GO_BACK_TO_ONE)
            raise

    def refuse(self) -> None:
        """Refuse to go on from it.

        Raises:
            InputError: it has happened.
        """
        if self._has_happened:
            raise InputError(f"an optimizer of this loop ran out of memory in its step\n  {GO_BACK_TO_ONE}")
