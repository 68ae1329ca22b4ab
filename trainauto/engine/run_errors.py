"""Errors that end a run, and who is to save before each (:class:`~trainauto.core.errors.Saving`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from trainauto.core.batch import Batch
from trainauto.core.errors import Saving, TrainautoError, have_saved
from trainauto.engine.step_outcome import DoesNotFit
from trainauto.memory.monitor.oom import allocator_message, in_words, is_of_device, is_out_of_memory

SHOWN_NAMES = 4


class NothingFitsError(TrainautoError):
    """Not even the smallest plan fits."""

    saving = Saving.TOGETHER


class ReplayError(TrainautoError):
    """A logged step fits here in no pieces, however small its samples are cut."""

    saving = Saving.TOGETHER


class RankAbortedError(TrainautoError):
    """Another rank could not continue and said so before this pass changed any weight; it waits for the checkpoint."""

    saving = Saving.TOGETHER

    @classmethod
    def in_pass(cls, *, saves: bool) -> Self:
        """Return the error of a pass that another rank ended; ``saves`` says whether that one saves with the others."""
        error = cls("another rank ended the run with an error; its log has the reason")
        have_saved(error, Saving.TOGETHER if saves else Saving.NOBODY)
        return error


class OptimizerOutOfMemoryError(TrainautoError):
    """The optimizer's own step ran out of memory: some weights may have moved, others not, and this is not saved.

    Other ranks may have stepped meanwhile: for all of them the last checkpoint is the last common moment.

    Args:
        pass_name: whose optimizer.
        message: what the allocator said.
        is_whole: whether the step is known to have changed no weight.
    """

    def __init__(self, pass_name: str, message: str, *, is_whole: bool = False) -> None:
        state = (
            "It failed twice and changed no weight."
            if is_whole
            else "Some weights may be updated and others not: they are not saved, and cannot be trained further."
        )
        super().__init__(
            f"the optimizer of pass '{pass_name}' ran out of memory in its step: {in_words(message.splitlines()[0])}\n"
            f"  {state}\n"
            "  Its memory does not depend on the batch. Set foreach: false or fused: true for the optimizer, take "
            "one with less state (SGD), a smaller network, or a larger budget."
        )
        self.is_whole = is_whole

    def say_last_checkpoint(self, checkpoint: Path | None, resume_command: str) -> None:
        """Add from where to go on: the last whole checkpoint of the run."""
        where = (
            f"{checkpoint} is the last intact checkpoint: free memory, then continue from it with {resume_command}"
            if checkpoint is not None
            else "This run has no checkpoint yet: free memory, then start it again."
        )
        self.say_more(where)

    def say_more(self, line: str) -> None:
        """Add what only the caller knows."""
        self.args = (f"{self}\n  {line}",)


class NoMemoryToSaveError(TrainautoError):
    """Memory ran out while a checkpoint was written, twice; what was there before it is whole.

    Args:
        step: whose checkpoint.
        message: what the allocator said.
        last: the last whole checkpoint; ``None`` where there is none.
    """

    def __init__(self, step: int, message: str, last: Path | None) -> None:
        stands = f"{last} is intact: with" if last is not None else "There is no other one yet: with"
        super().__init__(
            f"memory ran out while the checkpoint of step {step} was written: {in_words(message)}\n"
            f"  {stands} more room, start the run again with --auto_resume."
        )


class GroupOutOfMemoryError(TrainautoError):
    """A rank ran out of memory where it cannot run its batch again by itself: all ranks have to start again.

    Args:
        failure: what did not fit.
        batch: of which batch.
    """

    def __init__(self, failure: DoesNotFit, batch: Batch) -> None:
        super().__init__(
            f"{failure}\n  With ddp_overlap and fully_shard ranks synchronize inside the backward pass, so that the "
            "batch cannot be run again in micro-batches.\n  The last checkpoint is intact: torchrun --max-restarts N "
            "starts all ranks again, and they continue under a smaller plan, as a later start with --auto_resume does."
        )
        self.failure = failure
        self.batch = batch


class CannotRepeatError(TrainautoError):
    """A pass that ran out of memory cannot run again: it has changed what no step had changed before it.

    There is no copy to begin from. Nothing is saved: the last checkpoint is intact.

    Args:
        batch: leaves of the batch that it has changed.
        state: buffers and parameters that it has changed.
    """

    def __init__(self, *, batch: Sequence[str] = (), state: Sequence[str] = ()) -> None:
        changed = [
            f"{', '.join(names[:SHOWN_NAMES])}{' ...' if len(names) > SHOWN_NAMES else ''} of {whose}"
            for names, whose in ((batch, "its batch"), (state, "the model"))
            if names
        ]
        super().__init__(
            f"a pass ran out of memory after its forward pass had changed {' and '.join(changed)} in place, which no "
            "step had changed before: there is no copy to run it again from.\n  This step is lost; the trained weights "
            "are those before the pass. Go on from the last checkpoint, or with the next batch.\n  To have such steps "
            "run again, compute with a copy (x = x - mean in place of x.sub_(mean))."
        )


class MachineFailedError(TrainautoError):
    """Memory ran out where nothing is run again, or a device failed. Nothing is saved: the last checkpoint is intact.

    Args:
        what: what failed, in words.
        advice: what to do about it.
        last: the last whole checkpoint; ``None`` where there is none.
        resume_command: continues from it.
    """

    def __init__(self, what: str, advice: str, last: Path | None, resume_command: str) -> None:
        stands = f"{last} is the last intact checkpoint: continue from it with {resume_command or '--auto_resume'}"
        super().__init__(f"{what}\n  {advice}\n  {stands if last is not None else 'This run has no checkpoint yet.'}")


def failure_in_words(error: BaseException) -> tuple[str, str] | None:
    """Return what a lack of memory or a failed device is, and what to do; ``None`` for other errors and for ours."""
    if isinstance(error, TrainautoError):
        return None
    if is_out_of_memory(error):
        what = f"memory ran out: {in_words(allocator_message(error))}"
        return what, "Use smaller batches or a smaller model, or free memory that other programs hold."
    if is_of_device(error):
        return f"the device failed: {allocator_message(error)}", (
            "Its results can no longer be trusted, so nothing was retried or saved. On CUDA, CUDA_LAUNCH_BLOCKING=1 "
            "has the traceback name the operator; commands write it to training.log."
        )
    return None
