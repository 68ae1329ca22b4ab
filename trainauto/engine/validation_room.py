"""Whether validation fits the budget: known before the first step, and said so where it ends a run."""

import logging

from trainauto.core.errors import InputError, TrainautoError
from trainauto.core.process import without_memory_limit
from trainauto.engine.training import Training
from trainauto.engine.validation_set import ValidationSet
from trainauto.memory.monitor.release import release_memory

logger = logging.getLogger(__name__)


def say_if_validation_does_not_fit(run: Training) -> None:
    """Run the least that every set needs for its largest sample under the budget; say so if even that does not fit."""
    if run.model.is_sharded:
        return  # ranks run everything together, and nothing shrinks
    for validator in run.validators:
        try:
            # As validation does it, so that the limit is what is left beside what is held.
            with run.meter.window(), without_memory_limit() as limited:
                lack = validator.lack_of_room(run.model, limited)
        except InputError:
            continue  # validation will name it, once there are steps to save
        if lack:
            release_memory(run.model.device)  # notices, too, where oneDNN was broken all the same
            logger.warning("validation of %s will run out of memory: %s", validator.name, lack)


def lack_of_room(run: Training, validator: ValidationSet, error: BaseException) -> TrainautoError:
    """Return what ends a run whose validation does not fit; with ``fully_shard`` ranks do not save before it."""
    tried, advice = validator.if_too_large(error, is_sharded=run.model.is_sharded)
    if run.model.is_sharded:
        what = f"validation ran out of memory, {tried}; the last checkpoint is intact"
    elif run.finished:
        what = f"training finished and is saved; only validation failed: it ran out of memory, {tried}"
    else:
        what = f"validation ran out of memory, {tried}; every step so far is saved"
    return TrainautoError(f"{what}\n  {advice}, or more memory.")
