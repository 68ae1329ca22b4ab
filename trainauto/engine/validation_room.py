"""Whether validation fits the budget: known before the first step, and said so where it ends a run."""

import logging

from trainauto.core.errors import InputError, TrainautoError
from trainauto.core.process import without_memory_limit
from trainauto.engine.run import Run
from trainauto.memory.monitor.release import release_memory
from trainauto.models.validation import Validator

logger = logging.getLogger(__name__)


def say_if_validation_does_not_fit(run: Run) -> None:
    """Run the smallest tile of the largest picture of every set under the budget; say so if even that does not fit."""
    if run.model.is_sharded:
        return  # ranks run every tile together, and tiles do not shrink
    for validator in run.validators:
        try:
            # As validation does it, so that the limit is what is left beside what is held.
            with run.meter.window(), without_memory_limit() as limited:
                fits = validator.largest_fits(run.model.enlarge, limited)
        except InputError:
            continue  # validation will name it, once there are steps to save
        if fits:
            continue
        release_memory(run.model.device)  # notices, too, where oneDNN was broken all the same
        logger.warning(
            "validation of %s will not fit: beside its picture, no tile of %s fits what the budget leaves. Take a "
            "smaller tile_overlap, smaller images, or a larger budget, or write val_enabled: false under val",
            validator.dataset.name,
            _tile_words(validator),
        )


def _tile_words(validator: Validator) -> str:
    overlap_px = validator.overlap_px
    return f"the smallest kind (with {overlap_px} px around it, tile_overlap)" if overlap_px else "the smallest kind"


def lack_of_room(run: Run) -> TrainautoError:
    """Return what ends a run whose validation does not fit; with ``fully_shard`` ranks do not save before it."""
    where, advice = "not even in the smallest tiles", "Take smaller validation images, a smaller tile_overlap"
    if run.model.is_sharded:
        where = "and with fully_shard tiles do not shrink by themselves"
        what = f"validation does not fit, {where}; the last checkpoint stands"
        advice = "Set val: tile_size"
    elif run.finished:
        what = f"training is complete and saved; validation alone failed: it does not fit, {where}"
    else:
        what = f"validation does not fit, {where}; every step so far is saved"
    return TrainautoError(f"{what}\n  {advice}, or more memory.")
