"""Optimizers from options, and which blocks run again in the backward pass."""

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainauto.builders.components import build_component, checked_arguments, locate_errors
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
    loaded: LoadedOptions[FileOptions],
    path: KeyPath,
    chosen: Component,
    network: nn.Module,
    *,
    keeps_vectors: bool = False,
    **given: Any,
) -> MakeOptimizer:
    """Return what makes the optimizer that stands at a path of the options, from parameters of a network.

    Args:
        loaded: the options.
        path: where it stands.
        chosen: what stands there.
        network: has the parameters; Muon steps some of them only.
        keeps_vectors: of Muon, biases and weights of norms do not decay.
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
        logger.info("%s: %s", dotted(path), split)
        made: Optimizer = make(split.groups(keeps_vectors))
        return made

    return make_split


def check_trainer_optimizer(
    loaded: LoadedOptions[FileOptions], path: KeyPath, chosen: Component, weight_decay: float
) -> None:
    """Check an optimizer whose rate and decay are options beside it.

    Args:
        loaded: the options.
        path: where the optimizer stands.
        chosen: what stands there.
        weight_decay: its decay.

    Raises:
        InputError: there is no such optimizer, it does not take these arguments, or it does not fit here.
    """
    given = {"weight_decay"} if is_muon(chosen.type) else {"lr", "weight_decay"}
    checked_arguments(loaded, OPTIMIZERS, path, chosen.type, chosen.arguments, given, frozenset({"params"}))
    with locate_errors(loaded, path):
        if is_schedule_free(chosen.type):
            message = f"{chosen.type} keeps an average that is its result, and runs of this task keep none"
            raise InputError(Problem(message, argument="type", advice="Choose another one, such as AdamW or Lion."))
        beside = {"lr": "learning_rate", "weight_decay": "weight_decay"}
        for name in sorted(given & chosen.arguments.keys()):
            message = f"{name} of the optimizer is {dotted((*path[:-1], beside[name]))}"
            raise InputError(Problem(message, argument=name, advice=f"Write {beside[name]}, beside optim."))
        if weight_decay and "weight_decay" not in inspect.signature(OPTIMIZERS.get(chosen.type)).parameters:
            message = f"{chosen.type} has no weight decay, and weight_decay is {weight_decay:g}"
            raise InputError(Problem(message, argument="type", advice="Write weight_decay: 0, or choose another one."))


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
    check_trainer_optimizer(loaded, path, chosen, weight_decay)
    if is_muon(chosen.type):  # its own rate stands in its arguments: AdamW's would be far too low for it
        of_adamw = {"adamw_lr": learning_rate, "adamw_wd": weight_decay}
        given = {"weight_decay": weight_decay, **of_adamw}
        make = optimizer_maker(loaded, path, chosen, network, keeps_vectors=True, **given)
        return make(weight for weight in network.parameters() if weight.requires_grad)
    make = optimizer_maker(loaded, path, chosen, network, lr=learning_rate, weight_decay=weight_decay)
    return make(decaying_groups(network, weight_decay))
