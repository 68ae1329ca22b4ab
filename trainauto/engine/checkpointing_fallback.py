"""What is left when not even the smallest plan fits: gradient checkpointing, proposed or switched on."""

import logging
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any, Protocol

from trainauto.core.records import StepRecord
from trainauto.models.activation_checkpointing import ActivationCheckpointingError, in_words
from trainauto.models.base_model import BaseModel

logger = logging.getLogger(__name__)


EXPECTED_COST = "about a third longer (one more forward pass, where a backward pass takes as long as two; not measured)"

REMEMBERED = 50
JUDGED = 5
"""Steps whose median tells what it costs; the first with it is left out, since its allocations are new."""


class Trained(Protocol):
    """What trains a model."""

    @property
    def model(self) -> BaseModel:
        """What is trained."""


class CheckpointingFallback:
    """Gradient checkpointing when nothing else helps. It keeps account of what steps took before and take after.

    Args:
        allowed: whether the run may switch it on itself.
        may_help: ``False`` where a trace has shown that it would not be enough.

    Attributes:
        taken: whether the run has done so.
    """

    def __init__(self, *, allowed: bool = False, may_help: bool = True) -> None:
        self.allowed = allowed
        self.may_help = may_help
        self.taken = False
        self._without: deque[float] = deque(maxlen=REMEMBERED)  # seconds a unit of work, of pixels or tokens
        self._with: list[StepRecord] = []

    def take(self, run: Trained, why: str) -> str | None:
        """Switch it on, or return what a person is to know.

        Args:
            run: whose networks are to need less.
            why: what does not fit, in words.

        Returns:
            ``None`` if it is on from now, else why it is not, or what it would do.
        """
        model = run.model
        if model.checkpoints_gradients:
            return "Gradient checkpointing is already enabled."
        if not self.allowed and not self.may_help:
            return "Gradient checkpointing would not save enough memory."
        try:
            blocks = in_words(model.checkpoint_gradients() if self.allowed else model.blocks_to_checkpoint())
        except ActivationCheckpointingError as error:
            return f"Gradient checkpointing cannot help: {error}."
        if not self.allowed:
            return (
                f"{model.checkpointing_advice} ({blocks}): fewer activations are kept, and the backward pass "
                f"recomputes them, so that a step takes {EXPECTED_COST}."
            )
        self.taken = True
        logger.warning(
            "%s; gradient checkpointing is now enabled (%s), and a step takes %s", why, blocks, EXPECTED_COST
        )
        return None

    def see(self, record: StepRecord) -> None:
        """Note what a step took; say what it costs once a few steps tell."""
        if record.ooms or not record.units:
            return  # what was run again tells nothing
        if not self.taken:
            self._without.append(record.step_seconds / record.units)
        elif len(self._with) <= JUDGED:
            self._with.append(record)
            if len(self._with) > JUDGED:
                self._say_cost()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold to resume."""
        return {"taken": self.taken}

    def load_state_dict(self, state: Mapping[str, Any], model: BaseModel) -> None:
        """Continue as the run left off: with gradient checkpointing if it had come to that and still may."""
        if not state.get("taken") or model.checkpoints_gradients:
            return
        if not self.allowed:
            logger.warning(
                "the run was trained with gradient checkpointing; its options no longer allow it, so it is disabled"
            )
            return
        try:
            blocks = in_words(model.checkpoint_gradients())
        except ActivationCheckpointingError as error:
            logger.warning("the run was trained with gradient checkpointing, which is no longer possible: %s", error)
            return
        self.taken = True
        logger.info("gradient checkpointing stays enabled (%s)", blocks)

    def _say_cost(self) -> None:
        judged = self._with[-JUDGED:]
        seconds = median(record.step_seconds for record in judged)
        if not self._without:
            logger.info(
                "with gradient checkpointing a step takes %.3f s (median of %d); none without it was measured",
                seconds,
                JUDGED,
            )
            return
        before = median(self._without) * median(record.units for record in judged)
        logger.info(
            "with gradient checkpointing a step takes %.3f s (median of %d); without it, steps took %.3f s for as much "
            "(%+.0f %%)",
            seconds,
            JUDGED,
            before,
            100 * (seconds / before - 1),
        )
