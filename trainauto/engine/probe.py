"""Choosing the plan of the first batch: plans are measured before one of them is trained."""

import logging
import math
from collections.abc import Callable

from trainauto.core.automation import Automation
from trainauto.core.batch import Batch
from trainauto.core.decisions import Decision, PlanChange
from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.core.process import without_memory_limit
from trainauto.core.records import PeakReading, Probe
from trainauto.core.units import MIB
from trainauto.core.workload import weight_of
from trainauto.engine.gradients import accumulate_gradients
from trainauto.engine.optimizer_state import empty_step
from trainauto.engine.reduce import reduce_reading
from trainauto.engine.training import Training
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.monitor.release import release_between_plans, release_memory

logger = logging.getLogger(__name__)

MOST_PROBES = 4
"""Plans measured at most: the predicted one, its correction, and the edge between what fits and what does not."""


PROBE_STEPS = 2
"""Untrained steps of each: on a CPU the first one at a new shape takes up to 2.4 MiB less than those after it."""

MOST_COMPILED = 3
"""Untrained steps of a plan that may compile and then do not count: for whole passes, and for a smaller last one."""


def choose_first_plan(run: Training) -> None:
    """Have the automations of a new run choose the plan of its first batch, by measuring those they ask for.

    Nothing is trained by it: weights, optimizer state, buffers and random generators are as before, and no sample of
    the run's stream is used up.
    """
    if run.progress.steps or not run.script.is_free:
        return
    with run.meter.window() as now:
        pass
    reading = reduce_reading(run.ranks, run.loader.sharding, now.reading)
    if reading is None:
        return
    given, reason = run.loader.plan, ""
    # A rank that runs out of memory where it meets the others in the backward pass would keep them waiting; and how
    # large the largest draw is under a plan that counts no samples, not every dataset knows.
    is_known = BATCH_SIZE in run.loader.plan or run.loader.dataset.knows_largest
    probes = MOST_PROBES if is_known and not run.ranks.reduces_in_backward else 0
    change = _last_change(run, lambda automation: automation.begin(reading, probes))
    known: set[Plan] = set()
    for left in reversed(range(probes)):
        if change is None:
            break
        reason = change.reason
        run.controls.apply([change])
        plan = run.loader.plan
        if plan in known:  # those beside it were no better
            break
        known.add(plan)
        peak = reduce_reading(run.ranks, run.loader.sharding, measure(run, plan))
        taken = "does not fit" if peak is None else f"takes {peak.allocated / MIB:.1f} MiB"
        logger.info("measured before the first batch: %s %s", plan, taken)
        probe = Probe(plan, peak, (run.limit_bytes or run.meter.limit_bytes) if peak is None else peak.limit, left)
        change = _after_probe(run, probe)
    else:
        if change is not None:
            reason = change.reason
            run.controls.apply([change])
    if reason:
        _announce(run, given, reason)


def measure(run: Training, plan: Plan) -> PeakReading | None:
    """Return the peak of untrained steps under a plan; ``None`` if it does not fit.

    A peak above the target of the run says enough: no further step is made.
    """
    target_bytes = run.memory_target_bytes
    peak: PeakReading | None = None
    fits = True
    measured = 0
    for _ in range(PROBE_STEPS + MOST_COMPILED):
        compiled_s = _compiled_s(run)
        with run.meter.window() as window:
            try:
                untrained_step(run, plan)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                fits = False
        if not fits:
            break
        if _compiled_s(run) > compiled_s:  # what compiling takes is not the plan's
            continue
        measured += 1
        if peak is None or (window.reading and window.reading.allocated > peak.allocated):
            peak = window.reading
        is_above = peak is not None and target_bytes is not None and peak.allocated > target_bytes
        if is_above or measured == PROBE_STEPS:
            break
    # Outside of the handler: the error's traceback holds the tensors of the failed attempt.
    for optimizer in run.model.optimizers.values():
        optimizer.zero_grad(set_to_none=True)
    (release_between_plans if fits else release_memory)(run.model.device)
    run.meter.cap_at_available()
    return (peak or window.reading) if fits else None


def _compiled_s(run: Training) -> float:
    compilation = run.model.compilation()
    return 0.0 if compilation is None else compilation.seconds


def untrained_step(run: Training, plan: Plan, *, steps_optimizers: bool = True) -> None:
    """Run a step on copies of one sample that leaves everything as it was; in optimizers only those of a new run.

    Args:
        run: whose step.
        plan: for how many samples, of what size.
        steps_optimizers: run their step, too, with gradients of zero at learning rate 0.
    """
    batch = _largest_batch(run, plan)
    tensors = run.model.feed_data(batch)
    run.snapshot.take(tensors, batch.tensors)
    try:
        largest = math.ceil(len(batch) / min(plan.micro_batches, len(batch)))
        weight = weight_of(batch.workload, batch.tensors)
        for objective in run.model.objectives():
            handed_on = accumulate_gradients(objective, tensors, batch, largest, run.ranks, weight)[1]
            tensors = {**tensors, **handed_on}
            if steps_optimizers:
                empty_step(objective.optimizer)
    finally:
        run.snapshot.undo()
    for optimizer in run.model.optimizers.values():
        optimizer.zero_grad(set_to_none=True)


def _largest_batch(run: Training, plan: Plan) -> Batch:
    """Return the largest batch that this rank may have under a plan."""
    dataset, sharding = run.loader.dataset, run.loader.sharding
    weight = sharding.weights[run.ranks.rank]
    own = plan if BATCH_SIZE in plan else plan.with_size(max(1, int(plan.size * weight)))
    with without_memory_limit():
        tensors = dataset.largest_batch(own, max(1, int(plan.batch_size * weight)))
    shape = dataset.workload.shape(tensors)
    return Batch(tensors, dataset.workload, (dataset.sample_name(0),) * shape.samples, 0, plan, plan, shape)


def _after_probe(run: Training, probe: Probe) -> PlanChange | None:
    return _last_change(run, lambda automation: automation.on_probe(probe))


def _last_change(run: Training, event: Callable[[Automation], Decision | None]) -> PlanChange | None:
    """Return the last change of plan that the automations ask for upon an event."""
    changes = [decision for decision in run.journal.ask(event) if isinstance(decision, PlanChange)]
    return changes[-1] if changes else None


def _announce(run: Training, given: Plan, reason: str) -> None:
    plan = run.loader.plan
    if plan == given:
        logger.info("the first batch keeps the plan %s: %s", plan, reason)
        return
    first = PlanChange(plan, f"before the first batch: {reason}", announced=True)
    (decided,) = run.journal.decide([first], None, early=True)  # recorded with the first step
    expected = decided.predicted if isinstance(decided, PlanChange) else None
    predicted = f" (predicted {expected / MIB:.1f} MiB)" if expected is not None else ""
    logger.info("the first batch has the plan %s%s instead of %s", plan, predicted, given)
