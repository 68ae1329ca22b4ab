"""Optimizers from options, and which blocks run again in the backward pass."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainauto.builders.components import build_component, locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted
from trainauto.models.activation_checkpointing import ActivationCheckpointingError, in_words
from trainauto.models.base_model import BaseModel
from trainauto.optim import OPTIMIZERS
from trainauto.optim.adamw import decaying_groups, trainer_adamw
from trainauto.optim.ema import Averaging
from trainauto.optim.muon import is_muon, split_for_muon
from trainauto.options.load import LoadedOptions
from trainauto.options.resource_options import AUTO
from trainauto.options.run_options import AveragedTraining, FileOptions, is_schedule_free
from trainauto.options.schema import Component
from trainauto.options.source_locations import KeyPath, dotted

logger = logging.getLogger(__name__)

MakeOptimizer = Callable[[Iterable[Any]], Optimizer]


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


def averaging_of(train: AveragedTraining, optimizer: Component) -> Averaging:
    """Return how the average of the weights that an optimizer steps begins."""
    if is_schedule_free(optimizer.type):
        return Averaging(of_optimizer=True)
    return Averaging(train.ema_power, train.ema_update_after_step, train.ema_switch_iter)


def optimizer_maker(
    loaded: LoadedOptions[FileOptions], path: KeyPath, chosen: Component, network: nn.Module, **given: Any
) -> MakeOptimizer:
    """Return what makes the optimizer that stands at a path of the options, from parameters of a network.

    Args:
        loaded: the options.
        path: where it stands.
        chosen: what stands there.
        network: has the parameters; Muon steps some of them only.
        **given: arguments where the file gives it none of that name.

    Raises:
        InputError: there is no such optimizer, or it does not take these arguments.
    """
    make = build_component(loaded, OPTIMIZERS, path, chosen.type, chosen.arguments, given, later=frozenset({"params"}))
    if not is_muon(chosen.type):
        return make

    def make_split(parameters: Iterable[Any]) -> Optimizer:
        split = split_for_muon(network, parameters)
        if not split.hidden:
            with locate_errors(loaded, path):
                message = f"{chosen.type} steps weights between the first and the last layer, and there are none"
                raise InputError(Problem(message, argument="type", advice="Choose AdamW, or a deeper network."))
        logger.info("%s", split)
        made: Optimizer = make(split.groups)
        return made

    return make_split


def trainer_optimizer(
    loaded: LoadedOptions[FileOptions],
    path: KeyPath,
    chosen: Component | None,
    network: nn.Module,
    learning_rate: float,
    weight_decay: float,
) -> Optimizer:
    """Return an optimizer whose rate and decay are options beside it, in the words of transformers' Trainer.

    Args:
        loaded: the options.
        path: where the optimizer stands.
        chosen: what stands there; ``None`` for the AdamW of transformers' Trainer.
        network: the network to train.
        learning_rate: its rate.
        weight_decay: its decay.

    Raises:
        InputError: there is no such optimizer, it does not take these arguments, or it does not fit here.
    """
    if chosen is None:
        return trainer_adamw(network, learning_rate, weight_decay)
    if is_schedule_free(chosen.type):
        with locate_errors(loaded, path):
            message = f"{chosen.type} keeps an average that is its result, and runs of this task keep none"
            raise InputError(Problem(message, argument="type", advice="Choose another one, such as AdamW or Lion."))
    elsewhere = {"lr": "learning_rate", "weight_decay": "weight_decay"}
    for name in elsewhere.keys() & chosen.arguments.keys():
        with locate_errors(loaded, path):
            message = f"{name} of the optimizer is {dotted((*path[:-1], elsewhere[name]))}"
            raise InputError(Problem(message, argument=name, advice=f"Write {elsewhere[name]}, beside optim."))
    given = {"lr": learning_rate, "weight_decay": weight_decay}
    given |= {"adamw_lr": learning_rate, "adamw_wd": weight_decay}  # of what Muon leaves to AdamW
    make = optimizer_maker(loaded, path, chosen, network, **given)
    if is_muon(chosen.type):
        return make(weight for weight in network.parameters() if weight.requires_grad)
    return make(decaying_groups(network, weight_decay))
