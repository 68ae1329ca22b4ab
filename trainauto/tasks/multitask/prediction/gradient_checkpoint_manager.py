"""Gradient checkpointing of the model at hand, whoever wrote it."""

import logging
from collections.abc import Callable

from torch import nn

from trainauto.core.errors import InputError
from trainauto.models.activation_checkpointing import ActivationCheckpointingError, switch_off, switch_on

logger = logging.getLogger(__name__)


class GradientCheckpointManager:
    """Has the repeated blocks of a model run again in backward passes: less memory, a third more of computing."""

    @staticmethod
    def enable_gradient_checkpointing(model: nn.Module) -> None:
        """Switch it on: by the method of a model of Transformers; of any other, for the blocks that repeat.

        Predictions of memory made before no longer hold: make a new :class:`MemoryPredictor` afterwards.

        Raises:
            InputError: nothing in the model repeats.
        """
        own = _own_method(model, "enable")
        if own is not None:
            own()
            logger.info("gradient checkpointing is on: by %s itself", type(model).__name__)
            return
        try:
            blocks = switch_on(model)
        except ActivationCheckpointingError as error:
            raise InputError(f"gradient checkpointing cannot be switched on: {error}") from error
        logger.info("gradient checkpointing is on: %s run again in backward passes", blocks)

    @staticmethod
    def disable_gradient_checkpointing(model: nn.Module) -> None:
        """Switch it off again; a model that has it not stays as it is."""
        own = _own_method(model, "disable")
        if own is not None:
            own()
        else:
            switch_off(model)


def _own_method(model: nn.Module, what: str) -> Callable[[], None] | None:
    """Return a method of a model of Transformers that says it can; ``None`` for any other.

    The newer name first: later versions of Transformers warn of the other one.
    """
    if not getattr(model, "supports_gradient_checkpointing", False):
        return None
    for name in (f"activation_checkpointing_{what}", f"gradient_checkpointing_{what}"):
        if callable(method := getattr(model, name, None)):
            given: Callable[[], None] = method
            return given
    return None
