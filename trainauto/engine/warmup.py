"""What must have happened before the first measured step."""

import logging

from trainauto.core.objectives import parameters_of
from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.core.units import MIB
from trainauto.engine.optimizer_form import agree_on_form
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.engine.probe import choose_first_plan, untrained_step
from trainauto.engine.training import Training
from trainauto.engine.validation_room import say_if_validation_does_not_fit
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.release import release_memory

logger = logging.getLogger(__name__)

LEAST_EXACT_BYTES = 16 * MIB
"""Budgets of 5 and 10 MiB were passed by 8 and 4; those from here on were kept to."""


def warm_up_memory(run: Training) -> None:
    """Have all ranks start alike, the budget in force, and the plan of the first batch chosen."""
    put_limit_in_force(run)
    choose_first_plan(run)


def put_limit_in_force(run: Training) -> None:
    """Have all ranks start from the same weights, optimizer state allocated, and the budget of the run in force.

    Without a budget on the CPU there is nothing to steer by; on CUDA the limit is the card.
    """
    if (compilation := run.model.compilation()) is not None:
        compilation.around = run.meter.uncounted
    _share_start(run)
    make_optimizer_state(run.model.optimizers.values())
    if run.ranks.world_size > 1:
        agree_on_form(run.model.optimizers.values(), run.ranks)
    if run.budget_bytes is None:
        run.meter.cap_at_available()
        return
    on_cpu = run.model.device.type == "cpu"
    if on_cpu:
        budget.calm_allocator()
        _smallest_step(run)
        for validator in run.validators:
            validator.warm_up()
        release_memory(run.model.device)
    how = "enforced" if run.meter.set_budget(run.budget_bytes) else "watched"
    _say_budget(run, run.budget_bytes, how)
    if on_cpu:
        say_if_validation_does_not_fit(run)


def _say_budget(run: Training, budget_bytes: int, how: str) -> None:
    """Say what the budget counts, and how exactly it can be kept to."""
    size = f"memory budget of {budget_bytes / MIB:.0f} MiB"
    if run.model.device.type != "cpu":  # pragma: no cuda
        logger.info("%s of the card, %s", size, how)
        return
    held = f" {run.meter.baseline_bytes / MIB:.0f} MiB" if run.meter.baseline_bytes else ""
    logger.info("%s, %s: for what steps add to the%s held by now, weights and optimizer among it", size, how, held)
    if run.meter.is_enforced and budget_bytes < LEAST_EXACT_BYTES:
        logger.warning(
            "a budget below %.0f MiB cannot be enforced exactly: libraries may use several MiB that they reserved "
            "before, and peaks above it are then measured",
            LEAST_EXACT_BYTES / MIB,
        )


def lift_budget(run: Training) -> None:
    """Have whatever comes after the run in this process take what there is."""
    run.meter.lift_limit()


def _share_start(run: Training) -> None:
    """Give every rank the first one's weights: machines of another make may have drawn or rounded others."""
    if run.ranks.reduces_in_backward:
        return  # done when the network was made one of several
    averages = (average.network for average in run.model.averages.values())
    for network in (*run.model.networks.values(), *averages):
        run.ranks.broadcast_tensors(network.state_dict().values())
    run.ranks.prepare(weight for objective in run.model.objectives() for weight in parameters_of(objective))


def _smallest_step(run: Training) -> None:
    """Run forward and backward of the smallest step: kernels, threads and scratch space are then in place.

    One sample; where a loss couples samples it may need several, and the least of the run are taken. A compiled network
    takes two of the size that the run begins with: of one sample, or one pixel, torch.compile makes a graph of its own.
    """
    if run.model.compilation() is not None:
        untrained_step(run, run.loader.plan.with_batch_size(2), steps_optimizers=False)
        return
    plan = Plan.of(**{axis.name: axis.clamp(axis.minimum) for axis in run.axes})
    if BATCH_SIZE not in plan or all(objective.splittable for objective in run.model.objectives()):
        plan = plan.with_batch_size(1)
    untrained_step(run, plan, steps_optimizers=False)
