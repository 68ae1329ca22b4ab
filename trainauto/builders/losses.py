"""Loss terms of ``train.losses``."""

import logging
from collections.abc import Collection
from typing import Any

from torch import nn

from trainauto.builders.components import build_component, checked_arguments, locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.options.fields import Component
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import is_schedule_free
from trainauto.options.schema import Options
from trainauto.options.source_locations import KeyPath
from trainauto.options.training_options import LossTermOptions
from trainauto.tasks.sr.losses import LOSSES, GANLoss
from trainauto.tasks.sr.losses.left_out import near_perceptual, why_left_out
from trainauto.tasks.sr.losses.term import GT, SHARP
from trainauto.tasks.sr.models.sr_model import needs_average

logger = logging.getLogger(__name__)


def build_losses(loaded: LoadedOptions) -> dict[int, nn.Module]:
    """Return the losses by their place in the list.

    A loss that weighs 0 is not built and loads nothing, which is said. The loss of a discriminator always is: the
    discriminator learns from it whatever the generator does.

    Raises:
        InputError: a loss is unknown or left out here, does not take its arguments, or lacks a file or an average.
    """
    losses: dict[int, nn.Module] = {}
    idle: list[str] = []
    for position, chosen in enumerate(loaded.options.train.losses):
        path: KeyPath = ("train", "losses", position)
        if _is_idle(chosen):
            check_loss(loaded, path, chosen)
            idle.append(chosen.type.lower())
            continue
        _refuse_left_out(loaded, path, chosen)
        _warn_of_late(loaded.options, chosen)
        losses[position] = build_component(loaded, LOSSES, path, chosen.type, chosen.arguments)()
        train = loaded.options.train
        if needs_average(losses[position]) and not train.ema_decay and not is_schedule_free(train.optim_g.type):
            with locate_errors(loaded, (*path, "type")):
                message = f"loss '{chosen.type}' compares with the averaged network, and ema_decay is 0"
                raise InputError(Problem(message, advice="Write an ema_decay above 0, or remove the loss."))
    if idle:
        logger.info("losses with loss_weight 0 are left out, and load nothing: %s", ", ".join(idle))
    return losses


def labels(loaded: LoadedOptions) -> dict[int, str]:
    """Return the name that each loss is logged under by its place in the list: its own, or with its number if taken."""
    found: dict[int, str] = {}
    for position, chosen in enumerate(loaded.options.train.losses):
        name = chosen.type.lower()
        found[position] = name if name not in found.values() else f"{name}_{position + 1}"
    return found


def targets(options: Options) -> tuple[str, ...]:
    """Return the names of what the losses compare with, the image itself first."""
    counting = (chosen for chosen in options.train.losses if not _is_idle(chosen))
    return tuple(dict.fromkeys([GT, *(target_of(options, chosen) for chosen in counting)]))


def target_of(options: Options, chosen: LossTermOptions) -> str:
    """Return the name of what a loss compares with: its own key decides, else BasicSR's keys at the top level."""
    if "target" in chosen.model_fields_set:
        return chosen.target
    flag = options.l1_gt_usm
    if judges(chosen.type):
        flag = options.gan_gt_usm
    elif chosen.type in LOSSES and getattr(LOSSES.get(chosen.type), "compares_features", False):
        flag = options.percep_gt_usm
    return SHARP if flag else GT


def check_targets(loaded: LoadedOptions, found: Collection[str]) -> None:
    """Refuse losses that compare with what samples do not hold.

    Args:
        loaded: the options.
        found: names of the tensors of a batch.

    Raises:
        InputError: a loss does.
    """
    options = loaded.options
    for missing in [name for name in targets(options) if name not in found]:
        wanted = [target_of(options, chosen) for chosen in options.train.losses]
        position = wanted.index(missing)
        name, made_by = options.train.losses[position].type, options.datasets.train.type
        with locate_errors(loaded, ("train", "losses", position, "target")):
            message = f"loss '{name}' compares with {missing}, which a {made_by} does not make"
            raise InputError(Problem(message, advice="Write `target: gt`, or remove it."))


def judges(name: str) -> bool | None:
    """Say whether a loss is that of a discriminator; ``None`` where only building it can tell.

    A plugin may register any callable, and may yet bring a name that is not known.
    """
    kind = LOSSES.get(name) if name in LOSSES else None
    return issubclass(kind, GANLoss) if isinstance(kind, type) else None


def _warn_of_late(options: Options, chosen: LossTermOptions) -> None:
    begins, length = chosen.weight_schedule.start_iter if chosen.weight_schedule else 0, options.train.total_iter
    if length is not None and begins >= length:
        logger.warning("%s never counts: it begins after step %d, and the run has %d", chosen.type, begins, length)


def check_loss(loaded: LoadedOptions[Any], path: KeyPath, chosen: Component) -> None:
    """Check name and arguments of a loss; one that is left out here does not matter where it weighs nothing.

    Raises:
        InputError: it is unknown or left out, or does not take its arguments.
    """
    if not _is_idle(chosen):
        _refuse_left_out(loaded, path, chosen)
    if chosen.type in LOSSES or not why_left_out(chosen.type):
        checked_arguments(loaded, LOSSES, path, chosen.type, chosen.arguments)


def _is_idle(chosen: Component) -> bool:
    return chosen.arguments.get("loss_weight") == 0 and not judges(chosen.type)


def _refuse_left_out(loaded: LoadedOptions[Any], path: KeyPath, chosen: Component) -> None:
    if chosen.type not in LOSSES and (near := why_left_out(chosen.type)):
        with locate_errors(loaded, (*path, "type")):
            message = f"loss '{chosen.type}' is left out of trainauto"
            raise InputError(Problem(message, advice=f"Remove it, or write another: {near}."))
    if chosen.type.lower().removesuffix("loss") == "perceptual" and (found := near_perceptual(chosen.arguments)):
        argument, message, advice = found
        with locate_errors(loaded, (*path, argument)):
            raise InputError(Problem(message, advice=advice))
