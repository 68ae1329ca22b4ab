"""What follows when a step has run out of memory."""

import logging
import math
from collections.abc import Iterable
from dataclasses import astuple, replace
from typing import Any

from trainauto.control.step_policy import shrunk_after_oom, with_smaller_passes
from trainauto.core.batch import Batch
from trainauto.core.decisions import Decision, KeepPlan, PlanChange
from trainauto.core.plan import BATCH_SIZE, Axis, BatchShape, Plan, size_axis
from trainauto.core.records import OutOfMemory, PeakReading
from trainauto.core.words import counted
from trainauto.engine.oom_notes import failed_starts, read_oom_note
from trainauto.engine.run import Run
from trainauto.engine.run_errors import NothingFitsError
from trainauto.engine.step_outcome import DoesNotFit, Failure
from trainauto.engine.training import Training
from trainauto.memory.monitor.oom import in_words

logger = logging.getLogger(__name__)

MOST_DOUBLINGS = 6
"""Of the times that passes shrink after a start that failed: 64 times leave a hundred-millionth of them."""


def on_recovered(run: Training, batch: Batch, failures: tuple[Failure, ...]) -> list[Decision]:
    """Have later batches fit at once: as the automations say, else in as many pieces as this one needed."""
    for failure in failures:
        logger.warning(
            "out of memory in %s with %s; the batch runs again in %d micro-batches%s",
            run.model.words_for(failure.pass_name),
            counted(failure.samples, "sample"),
            failure.pieces,
            of_size(run.axes, failure.extent),
        )
    if not failures:
        return []
    run.meter.cap_at_available()  # a neighbour may have left, or come
    # One event for each pass, of the pieces in which it fitted in the end: it is one recovery, whatever it took.
    last = {failure.pass_name: failure for failure in failures}.values()
    events = [
        _event(run, batch, failure.pass_name, failure.samples, failure.message, failure.pieces) for failure in last
    ]
    decisions = [decision for event in events for decision in _ask(run, event)]
    if not any(isinstance(decision, PlanChange | KeepPlan) for decision in decisions):
        decisions += _more_pieces(run.loader.plan, failures[-1])
    decided = run.journal.decide(decisions, batch.plan)
    extent = min((failure.extent for failure in failures if failure.is_cut), default=None)
    is_kept = any(isinstance(decision, KeepPlan) for decision in decisions)
    counts = BATCH_SIZE in run.loader.plan  # else its size is that of a draw, not of a sample
    if counts and not is_kept and extent is not None and extent < run.loader.plan.size:
        reason = f"out of memory: samples of no more than {_sized(run.axes, extent)} from now on"
        decided += run.journal.decide([PlanChange(run.loader.plan.with_size(extent), reason)], batch.plan)
    return decided


def _more_pieces(plan: Plan, failure: Failure) -> list[Decision]:
    """Return the change to as many micro-batches as samples that fit ask for, if the plan has fewer.

    The same on every rank: it goes by what all know of the failure.
    """
    if BATCH_SIZE in plan:
        micro_batches = math.ceil(plan.batch_size / failure.fitted)
        what = f"at most {counted(failure.fitted, 'sample')} per micro-batch"
    else:
        micro_batches = failure.pieces
        what = f"every batch in {failure.pieces} micro-batches"
    if micro_batches <= plan.micro_batches:
        return []
    return [PlanChange(plan.with_micro_batches(micro_batches), f"out of memory: {what} from now on")]


def of_size(axes: Iterable[Axis], extent: int) -> str:
    """Return how large samples are, to follow what they are: `` of 48 px``; nothing where no axis is a size."""
    return f" of {_sized(axes, extent)}" if size_axis(axes) is not None else ""


def _sized(axes: Iterable[Axis], extent: int) -> str:
    axis = size_axis(axes)
    return f"{extent} {axis.unit}" if axis is not None else str(extent)


def on_batch_too_large(
    run: Training, batch: Batch, failure: DoesNotFit, peak: PeakReading | None = None
) -> list[Decision]:
    """Give the batch back to the loader, under a smaller plan; where there is none, turn to the last resort.

    Raises:
        NothingFitsError: there is no smaller plan and nothing else to be done.
    """
    run.meter.cap_at_available()
    event = replace(_event(run, batch, failure.pass_name, failure.samples, failure.message, 0), peak=peak)
    if failure.extent:  # of the rank where it failed: of texts, those of other ranks may be longer
        event = replace(event, shape=replace(event.shape, extent=failure.extent))
    decisions = run.journal.decide(_ask(run, event), batch.plan, early=True)
    run.loader.requeue(batch)
    if not _is_smaller(batch.drawn.capped_by(run.loader.plan), batch.plan):
        decisions += _force(run, event)
    what = "out of memory in %s: retrying its samples with %s"
    logger.warning(what, run.model.words_for(failure.pass_name), run.loader.plan)
    return decisions


def on_group_oom(run: Run) -> None:
    """Where running out of memory ended all ranks since the last checkpoint, continue under a smaller plan.

    Raises:
        NothingFitsError: there is none.
    """
    # The first rank's word: not every file system shows the others the same files at the same moment.
    note = run.ranks.broadcast_object(lambda: _packed(read_oom_note(run.checkpoints.folder, run.axes)))
    if note is None:
        return
    event = OutOfMemory(**{**note, "plan": Plan.from_dict(note["plan"]), "shape": BatchShape(*note["shape"])})
    run.journal.decide(_ask(run, event), event.plan, early=True)
    if not _is_smaller(run.loader.plan, event.plan):
        _force(run, event)
    _shrink_further(run, event, run.ranks.broadcast_object(lambda: failed_starts(run.checkpoints.folder)))
    logger.warning(
        "the ranks ran out of memory under %s and ended; they continue under %s", event.plan, run.loader.plan
    )


def _shrink_further(run: Run, event: OutOfMemory, failures: int) -> None:
    """Have forward passes take less, twice as often after each start that has failed: launchers do not start for ever.

    Args:
        run: under the plan that follows the failed one.
        event: of the last start.
        failures: starts that have failed since the last checkpoint, this one among them.
    """
    plan = run.loader.plan
    for _ in range(2 ** min(max(failures - 1, 0), MOST_DOUBLINGS) - 1):
        plan = with_smaller_passes(plan, run.axes) or plan
    if plan != run.loader.plan:
        change = PlanChange(plan, f"{failures} consecutive starts ran out of memory: micro-batches shrink further")
        run.journal.decide([change], event.plan, early=True)


def _packed(event: OutOfMemory | None) -> dict[str, Any] | None:
    """Return an event as plain values."""
    return None if event is None else {**vars(event), "plan": event.plan.to_dict(), "shape": astuple(event.shape)}


def _force(run: Training, event: OutOfMemory) -> list[Decision]:
    """Shrink all axes; where they are as small as may be, turn to the last resort.

    Raises:
        NothingFitsError: that is no help either.
    """
    failed = event.plan
    if event.shape.samples == 1:  # a text may be shorter than its plan allows: what failed was this long
        failed = failed.with_size(min(failed.size, event.shape.extent))
    plan = shrunk_after_oom(failed, run.axes)
    if plan is not None and _is_smaller(plan, event.plan):
        smaller = PlanChange(plan.capped_by(run.loader.plan), f"out of memory under {event.plan}: the plan shrinks")
        return run.journal.decide([smaller], event.plan, early=True)
    size, samples = of_size(run.axes, event.shape.extent), event.shape.samples
    few = f"one sample{size} does not fit"
    many = f"{counted(samples, 'sample')}{size} do not fit together, and no smaller batch is allowed"
    what = f"{few if samples <= 1 else many}: {in_words(event.message)}"
    advice = run.last_resort.take(run, what)
    if advice is not None:
        lines = [what, run.model.smaller_batches if samples > 1 else "", advice, run.model.less_memory]
        raise NothingFitsError("\n  ".join(filter(None, lines)))
    run.journal.invalidate_peaks()
    return []


def _ask(run: Training, event: OutOfMemory) -> list[Decision]:
    return run.journal.ask(lambda automation: automation.on_out_of_memory(event))


def _event(run: Training, batch: Batch, pass_name: str, samples: int, message: str, pieces: int) -> OutOfMemory:
    shape = replace(batch.shape, samples=samples)
    return OutOfMemory(run.progress.steps + 1, batch.plan, shape, pass_name, message, pieces, run.limit_bytes)


def _is_smaller(plan: Plan, other: Plan) -> bool:
    """Say whether a step under ``plan`` needs less than one under ``other``, and more of nothing."""
    mine, theirs = (plan.forward_batch_size, plan.forward_size), (other.forward_batch_size, other.forward_size)
    # With one sample a forward pass only a smaller one helps.
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1] and (theirs[0] > 1 or mine[1] < theirs[1])
