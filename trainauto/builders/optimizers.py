"""Optimizers from options, and which blocks run again in the backward pass."""

import logging
from collections.abc import Callable, Sequence

from torch.optim import Optimizer

from trainauto.builders.components import build_component, locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted
from trainauto.models.activation_checkpointing import ActivationCheckpointingError, in_words
from trainauto.models.base_model import BaseModel
from trainauto.optim import OPTIMIZERS
from trainauto.optim.ema import Averaging
from trainauto.options.load import LoadedOptions
from trainauto.options.resource_options import AUTO
from trainauto.options.run_options import AveragedTraining, FileOptions
from trainauto.options.schema import Component

logger = logging.getLogger(__name__)


def checkpoint_gradients(loaded: LoadedOptions[FileOptions], model: BaseModel) -> None:
    """Have the model run blocks again in the backward pass as the file says, and say which; ``auto`` is decided later.

    Raises:
        InputError: it has none, or none of these names.
    """
    chosen = loaded.options.memory.gradient_checkpointing
    if not chosen:
        return
    with locate_errors(loaded, ("memory", "gradient_checkpointing")):
        try:
            if chosen == AUTO:
                model.blocks_to_checkpoint()
                return
            blocks = model.checkpoint_gradients(None if chosen is True else chosen)
        except ActivationCheckpointingError as error:
            problem = Problem(f"gradient checkpointing is not possible: {error}", advice="Leave it out.")
            raise InputError(problem) from error
    if chosen is True:
        logger.info("gradient checkpointing: %s", in_words(blocks))
    else:
        say_parts(chosen, model)


def say_parts(chosen: Sequence[str], model: BaseModel) -> None:
    """Say which blocks run again, where these are some of all."""
    which = f": {', '.join(chosen)}" if chosen else ""
    logger.info(
        "gradient checkpointing: %d of %s run again%s",
        len(chosen),
        counted(len(model.parts_to_checkpoint()), "block"),
        which,
    )


def averaging_of(train: AveragedTraining) -> Averaging:
    """Return how the average of weights begins."""
    return Averaging(train.ema_power, train.ema_update_after_step, train.ema_switch_iter)


def optimizer_maker(loaded: LoadedOptions[FileOptions], key: str, chosen: Component) -> Callable[..., Optimizer]:
    """Return what makes the optimizer that stands under a key of ``train``, from parameters.

    Raises:
        InputError: there is no such optimizer, or it does not take these arguments.
    """
    return build_component(
        loaded, OPTIMIZERS, ("train", key), chosen.type, chosen.arguments, later=frozenset({"params"})
    )
