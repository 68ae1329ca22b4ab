"""A plan that fills memory may leave a short run too few steps to learn anything: said before it begins."""

import logging

from trainauto.core.plan import Plan
from trainauto.engine.training import Training

logger = logging.getLogger(__name__)

FEW_STEPS = 50
"""Steps below which a run is warned of; in a first trial, runs of 4, 8 and 38 steps ended far worse than of 138."""


def warn_of_few_steps(run: Training, total_samples: int, given: Plan, option: str | None) -> None:
    """Say how many steps a run has under its first plan, where they are few and it was memory that let batches grow.

    Args:
        run: whose first plan is chosen.
        total_samples: that it is to train.
        given: the plan that was asked for.
        option: what bounds batches; ``None`` where nothing is to be said.
    """
    if option is None:
        return
    plan, loader = run.loader.plan, run.loader
    of_a_step = loader.sharding.total(max(1, round(loader.dataset.mean_samples(plan))))
    steps = -(-total_samples // of_a_step)
    before = loader.sharding.total(max(1, round(loader.dataset.mean_samples(given))))
    if steps >= FEW_STEPS or of_a_step <= before:
        return
    logger.warning(
        "%s leaves this run about %d steps in all (%s: %d), which is few to learn in: a smaller %s leaves more "
        "steps, and memory unused",
        plan,
        steps,
        given,
        -(-total_samples // before),
        option,
    )
