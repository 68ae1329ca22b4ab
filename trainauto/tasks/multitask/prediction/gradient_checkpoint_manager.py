"""Gradient checkpointing of the model at hand, whatever its code."""

import logging
from collections.abc import Callable, Iterator

from torch import nn

from trainauto.models.activation_checkpointing import (
    NAMED_BLOCKS,
    ActivationCheckpointingError,
    switch_off,
    switch_on,
)

logger = logging.getLogger(__name__)


class GradientCheckpointManager:
    """Has the repeated blocks of a model run again in backward passes: less memory, a third more of computing."""

    @staticmethod
    def enable_gradient_checkpointing(model: nn.Module) -> None:
        """Switch it on: by the method of a model of Transformers; of any other, for the blocks that repeat.

        Where nothing repeats, the modules that consist of several layers run again. A model of single layers alone
        stays as it is, with a warning: there is nothing that it could do without.

        Predictions of memory made before no longer hold: make a new :class:`MemoryPredictor` afterwards.
        """
        own = _own_method(model, "enable")
        if own is not None:
            own()
            logger.info("gradient checkpointing is on: by %s itself", type(model).__name__)
            return
        try:
            blocks = switch_on(model)
        except ActivationCheckpointingError:
            parts = list(_parts_of(model))
            if not parts:
                logger.warning(
                    "gradient checkpointing saves nothing in %s, which consists of single layers: it stays as it is",
                    type(model).__name__,
                )
                return
            setattr(model, NAMED_BLOCKS, parts)
            blocks = switch_on(model)
        logger.info("gradient checkpointing is on: %s run again in backward passes", blocks)

    @staticmethod
    def disable_gradient_checkpointing(model: nn.Module) -> None:
        """Switch it off again; a model that has it not stays as it is."""
        own = _own_method(model, "disable")
        if own is not None:
            own()
        else:
            switch_off(model)


def _parts_of(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost modules within a model that consist of others and are called themselves."""
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _parts_of(child)
        elif any(True for _ in child.children()):
            yield child


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
