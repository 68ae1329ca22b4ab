"""How a run ends: by its length, a stop, a signal, or an error; what is saved before, and what is said of it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals

from trainauto.core.errors import Saving, TrainautoError, saving_before
from trainauto.core.process import without_memory_limit
from trainauto.core.run_events import DETAIL, EndStatus, RunEnd
from trainauto.core.words import counted
from trainauto.engine.oom_notes import write_oom_note
from trainauto.engine.run import Run
from trainauto.engine.run_errors import (
    GroupOutOfMemoryError,
    MachineFailedError,
    OptimizerOutOfMemoryError,
    failure_in_words,
)
from trainauto.engine.warmup import lift_budget

logger = logging.getLogger(__name__)

TERMINATIONS = {"completed": "auto_complete", "interrupted": "interrupted", "failed": "failed"}
"""What ended a run, for programs, by its status; what stopped one says so itself."""


@contextmanager
def saving_on_errors(run: Run) -> Iterator[None]:
    """Leave behind what the error that ends a run says: a checkpoint of this step, a note for the next start."""
    try:
        yield
    except GroupOutOfMemoryError as error:
        step, limit_bytes = run.progress.steps + 1, run.meter.limit_bytes
        with without_memory_limit():
            write_oom_note(run.checkpoints.folder, run.ranks.rank, step, error.batch, error.failure, limit_bytes)
        raise
    except OptimizerOutOfMemoryError as error:
        error.say_last_checkpoint(run.last_checkpoint, run.resume_command or "--auto_resume")
        raise
    except Exception as error:
        alone = run.ranks.world_size == 1
        if saving_before(error) >= (Saving.ALONE if alone else Saving.TOGETHER):
            run.save()
        raise


@contextmanager
def reporting_failure(run: Run) -> Iterator[None]:
    """Tell the reporter of an error that ends a run; whatever ends it, the budget is taken off the process."""
    try:
        yield
    except KeyboardInterrupt:
        run.reporter.end(_end(run, "interrupted", "stopped immediately", resume_command=run.resume_command))
        raise
    except BaseException as raised:
        said = failure_in_words(raised)
        error = raised if said is None else MachineFailedError(*said, run.last_checkpoint, run.resume_command)
        # The first line is enough here: the command prints the whole of it. Errors of ours say what they are.
        message = str(error) if isinstance(error, TrainautoError) else f"{type(error).__name__}: {error}"
        # The command names a file or a device, and no line of code, which a plugin's author needs.
        if isinstance(error, OSError) or error is not raised:
            logger.log(DETAIL, "this ended the run:", exc_info=raised)
        command = run.resume_command if run.last_checkpoint is not None else ""
        run.reporter.end(
            _end(run, "failed", next(iter(message.splitlines()), type(error).__name__), resume_command=command)
        )
        if error is raised:
            raise
        raise error from raised
    finally:
        lift_budget(run)


def end_of(run: Run, *, was_complete: bool) -> RunEnd:
    """Return how a run ended that no error has ended; ``was_complete`` before it began."""
    facts = (*run.script.facts(), *_undone(run))
    if run.signals.agreed:
        return _end(
            run, "interrupted", f"{Signals(run.signals.agreed).name} received", facts, resume_command=run.resume_command
        )
    facts = (*facts, *run.closing(run.progress))
    if run.controls.stop_reason:
        return _end(run, "stopped", run.controls.stop_reason, facts)
    if was_complete:
        unit = run.schedule.unit
        key = run.length_key or f"{'total_iter' if unit == 'steps' else 'total_samples'} under train"
        reason = f"it had finished before, at {run.schedule.total} {unit}: raise {key} to continue"
        return _end(run, "completed", reason, facts)
    return _end(run, "completed", "training finished", facts)


def _undone(run: Run) -> tuple[tuple[str, str], ...]:
    """Say what was trained and is not kept, as (label, text)."""
    if not run.rollbacks:
        return ()
    trained, undone = run.progress.steps + run.progress.undone_steps, run.progress.undone_steps
    return (("undone", f"{undone} of {counted(trained, 'step')}, by {counted(len(run.rollbacks), 'rollback')}"),)


def _end(
    run: Run, status: EndStatus, reason: str, facts: tuple[tuple[str, str], ...] = (), *, resume_command: str = ""
) -> RunEnd:
    termination = TERMINATIONS.get(status, run.controls.termination)
    return RunEnd(status, reason, run.progress, str(run.last_checkpoint or ""), facts, resume_command, termination)
