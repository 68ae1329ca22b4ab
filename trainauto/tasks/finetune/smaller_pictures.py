"""What is left when not even one conversation fits: pictures of fewer pixels."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from trainauto.core.decisions import KeepPlan
from trainauto.core.process import without_memory_limit
from trainauto.core.records import StepRecord
from trainauto.engine.checkpointing_fallback import CheckpointingFallback
from trainauto.engine.training import Training
from trainauto.models.base_model import BaseModel
from trainauto.tasks.finetune.pictures import Pictures

logger = logging.getLogger(__name__)

LIMIT = "max_pixels"
"""Of a checkpoint: pixels that pictures kept then, where that is fewer than the file says."""

OPTION = "memory: {shrink_pictures_to: N}"


class SmallerPictures:
    """Reduces pictures further where one conversation alone does not fit, as far as the option file allows.

    It never happens for speed, nor for a larger batch, and nothing is enlarged again: the same samples come again, and
    all after them, in fewer pixels. The decision is logged, stands in the run's decisions, and a resume keeps it.

    Args:
        pictures: of the run.
        learn_largest: has plans go by a conversation, as it is from now on.
    """

    def __init__(self, pictures: Pictures, learn_largest: Callable[[int], None]) -> None:
        self._pictures, self._learn_largest = pictures, learn_largest
        self._given = pictures.limit
        self._checkpointing = CheckpointingFallback()
        self._to_say = ""

    def take(self, run: Training, why: str) -> str | None:
        """Reduce pictures, or return what a person is to know.

        Args:
            run: whose step does not fit.
            why: what does not fit, in words.

        Returns:
            ``None`` if they are reduced from now, else why they are not, and what else would help.
        """
        pictures = self._pictures
        before, smaller = pictures.largest, pictures.next_smaller
        if smaller is None:
            return f"{self._why_not()} {self._checkpointing.take(run, why)}"
        self._reduce_to(smaller)
        run.loader.redraw()
        reason = f"{why}: pictures are reduced to {smaller} pixels from now on, of {before} that the largest one had"
        logger.warning("%s", reason)
        run.journal.decide([KeepPlan(run.loader.plan, reason)], None, early=True)
        return None

    def see(self, record: StepRecord) -> None:
        """Say what a resume has come to: no handler listened when it was read."""
        del record
        if self._to_say:
            logger.warning("%s", self._to_say)
            self._to_say = ""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold to resume."""
        limit = self._pictures.limit
        return {LIMIT: limit} if limit < self._given else {}

    def load_state_dict(self, state: Mapping[str, Any], model: BaseModel) -> None:
        """Continue as the run left off, as far as the option file still allows it."""
        del model
        limit, fewest = state.get(LIMIT), self._pictures.fewest
        if limit is None or limit >= self._given:
            return
        if fewest is None:
            self._to_say = f"pictures had been reduced to {limit} pixels, which the file no longer allows: {OPTION}"
            return
        self._reduce_to(max(int(limit), fewest))
        self._to_say = f"pictures stay reduced to {limit} pixels, as before the resume"
        if fewest > limit:
            self._to_say = (
                f"pictures had been reduced to {limit} pixels, and shrink_pictures_to now allows no fewer than "
                f"{fewest}: they have up to {self._pictures.limit} from now on"
            )

    def _reduce_to(self, pixels: int) -> None:
        with without_memory_limit():  # it is for what networks compute
            self._pictures.reduce_to(pixels)
            self._learn_largest(self._pictures.longest)

    def _why_not(self) -> str:
        pictures = self._pictures
        if not pictures.largest or not pictures.are_bounded:
            return "There are no pictures that could be reduced."
        if pictures.fewest is None:
            return f"{OPTION} would reduce pictures, the largest of which has {pictures.largest} pixels now."
        return (
            f"The largest picture has {pictures.largest} pixels, and shrink_pictures_to allows no fewer than "
            f"{pictures.fewest}."
        )
