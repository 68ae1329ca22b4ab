"""Networks, discriminator and model of super-resolution from options."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.archs import ARCHS, is_discriminator
from trainauto.builders.components import build_component, locate_errors
from trainauto.builders.discriminator import discriminator_options
from trainauto.builders.losses import build_losses, labels, target_of
from trainauto.builders.network_bounds import defaults_of, within_reason
from trainauto.builders.optimizers import averaging_of, checkpoint_gradients, optimizer_maker
from trainauto.builders.pretrained import load_start
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import SizeRequirements
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.tracing.host_reads import place_of_error
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim.ema import PLAIN
from trainauto.optim.precision import Precision
from trainauto.options.combination_checks import image_sets
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Component, Options
from trainauto.tasks.sr.losses.term import WHOLE, LossTerm
from trainauto.tasks.sr.models import MODELS

IMAGE_SETS = frozenset({"gtimagedataset", "pairedimagedataset", "realesrgandataset", "realesrganpaireddataset"})
IMAGE_CHANNELS = (1, 3)
"""What images of these sets are read as."""


def build_network(loaded: LoadedOptions, *, pretrained: bool = True) -> nn.Module:
    """Build the network, check that it enlarges as it should, and load pretrained weights if wanted."""
    options, chosen = loaded.options, loaded.options.network_g
    refuse_discriminator(loaded, chosen.type)
    given = {"scale": options.scale, "upscale": options.scale}
    construct = build_component(loaded, ARCHS, ("network_g",), chosen.type, chosen.arguments, given)
    with locate_errors(loaded, ("network_g",)), _bounded(chosen):
        network: nn.Module = construct()
    with locate_errors(loaded, ("network_g",)):
        _check_input(options, network)
        _check_output(network, chosen.type, options.scale)
    if pretrained:
        load_start(loaded, network, "g", options.path.pretrain_network_g)
    return network


def _bounded(chosen: Component) -> AbstractContextManager[None]:
    """Return what refuses a network that is far too large, while it is built."""
    usual = defaults_of(ARCHS.get(chosen.type))
    return within_reason(f"network '{chosen.type}'", chosen.arguments, usual)


def refuse_discriminator(loaded: LoadedOptions[Any], name: str) -> None:
    """Refuse a ``network_g`` that judges images.

    Raises:
        InputError: it does, or there is no such network.
    """
    with locate_errors(loaded, ("network_g", "type")):
        if is_discriminator(ARCHS.get(name)):
            raise InputError(
                Problem(f"network '{name}' judges images and enlarges none", advice="Write it as network_d.")
            )


def _check_input(options: Options, network: nn.Module) -> None:
    """Refuse a network whose input no image set here can give; a set of a plugin may give anything."""
    channels = channels_of(network)
    kinds = {image_set.type.lower() for _, image_set in image_sets(options.datasets)} if _has_sets(options) else set()
    if channels in IMAGE_CHANNELS or not kinds & IMAGE_SETS:
        return
    message = f"network '{options.network_g.type}' takes {channels} channels, and images are read as RGB or grey"
    argument = "num_in_ch" if "num_in_ch" in options.network_g.arguments else ""
    raise InputError(Problem(message, advice="Write num_in_ch: 3, or 1 for grey.", argument=argument))


def _has_sets(options: Options) -> bool:
    return "datasets" in options.model_fields_set  # options that were made for a file of weights have none


def _check_output(network: nn.Module, name: str, scale: int) -> None:
    """Run a few pixels through the network: what it should not return would only show as an error in the loss."""
    needs, channels = requirements_of(network), channels_of(network)
    side = -(-max(needs.minimum, 8) // needs.multiple) * needs.multiple
    image, expected = torch.zeros(1, channels, side, side), (1, channels, side * scale, side * scale)
    must = f"Its forward must return one tensor of {_sizes(expected)} for an image of {_sizes(image.shape)}."
    was_training = network.training
    try:
        with torch.no_grad():
            output = network.eval()(image)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        lines = str(error).strip().splitlines()
        message = f"network '{name}' fails: {type(error).__name__}{': ' + lines[0] if lines else ''}"
        raise InputError(Problem(f"{message}, at {place_of_error(error)}", advice=must)) from error
    finally:
        network.train(was_training)
    if not isinstance(output, Tensor):
        count = f" of {len(output)}" if isinstance(output, tuple | list | dict) else ""
        raise InputError(Problem(f"network '{name}' returns a {type(output).__name__}{count}, no image", advice=must))
    if tuple(output.shape) != expected:
        message = (
            f"network '{name}' makes {_sizes(output.shape)} of {_sizes(image.shape)}, which is not `scale: {scale}`"
        )
        if output.shape[2:] == expected[2:]:
            message = f"network '{name}' makes {_sizes(output.shape)} of {_sizes(image.shape)}"
        raise InputError(
            Problem(message, advice=f"{must} Set scale to what the network does, or give it the scale it should do.")
        )


def _sizes(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "no size"


def requirements_of(network: nn.Module) -> SizeRequirements:
    """Return the sizes a network asks for; one that does not say takes any."""
    requirements = getattr(network, "size_requirements", SizeRequirements())
    return requirements if isinstance(requirements, SizeRequirements) else SizeRequirements()


def channels_of(network: nn.Module) -> int:
    """Return the channels of a network's input; one that does not say takes RGB."""
    return int(getattr(network, "num_in_ch", 3))


def build_model(
    loaded: LoadedOptions,
    network: nn.Module,
    precision: Precision,
    *,
    pretrained: bool = True,
    parallel: Parallel | None = None,
) -> BaseModel:
    """Build losses, optimizers, the discriminator where the model has one, and the model that holds them all."""
    options = loaded.options
    losses, names = build_losses(loaded), labels(loaded)
    with locate_errors(loaded, ("model_type",)):
        model_class = MODELS.get(options.model_type)
    network_d, optim_d = discriminator_options(loaded, model_class, losses)
    extras: dict[str, Any] = {}
    if parallel is not None:
        if "parallel" not in inspect.signature(model_class).parameters:
            message = f"{options.model_type} knows no ddp_overlap and no fully_shard"
            raise InputError(
                Problem(message, advice="Leave them out: gradients are then summed after the backward pass.")
            )
        extras["parallel"] = parallel
    if network_d is not None and optim_d is not None:
        extras["network_d"] = _build_discriminator(loaded, network_d, channels_of(network), pretrained=pretrained)
        extras["make_optimizer_d"] = optimizer_maker(loaded, ("train", "optim_d"), optim_d, extras["network_d"])
        extras |= _pace_of(loaded, model_class)
    extras |= _averaging_of(loaded, model_class)
    extras |= _terms_of(loaded, model_class, {position: names[position] for position in losses})
    model: BaseModel = model_class(
        network,
        {names[position]: loss for position, loss in losses.items()},
        optimizer_maker(loaded, ("train", "optim_g"), options.train.optim_g, network),
        precision,
        ema_decay=options.train.ema_decay,
        channels_last=options.use_channels_last,
        compile_network=options.compile_mode if options.use_compile else False,
        **extras,
    )
    checkpoint_gradients(loaded, model)
    return model


def _build_discriminator(loaded: LoadedOptions, chosen: Component, channels: int, *, pretrained: bool) -> nn.Module:
    """Build the discriminator, check that it judges the images there are, and load pretrained weights if wanted."""
    construct = build_component(loaded, ARCHS, ("network_d",), chosen.type, chosen.arguments)
    with locate_errors(loaded, ("network_d",)), _bounded(chosen):
        network: nn.Module = construct()
    with locate_errors(loaded, ("network_d",)):
        if hasattr(network, "scale") and not is_discriminator(type(network)):
            raise judges_nothing(chosen.type)
        if channels_of(network) != channels:
            message = f"the discriminator judges images of {channels_of(network)} channels, and there are {channels}"
            raise InputError(Problem(message, advice=f"Write num_in_ch: {channels}."))
    if pretrained:
        load_start(loaded, network, "d", loaded.options.path.pretrain_network_d)
    return network


def judges_nothing(name: str) -> InputError:
    """Return the error of a network that is to be a discriminator and enlarges images."""
    discriminators = ", ".join(known for known in ARCHS if is_discriminator(ARCHS.get(known)))
    message = f"network '{name}' enlarges images and judges none"
    return InputError(Problem(message, argument="type", advice=f"Known discriminators: {discriminators}."))


def _pace_of(loaded: LoadedOptions, model_class: Callable[..., Any]) -> dict[str, int]:
    """Return how often the generator steps, for a model that knows of it; refuse what it would leave unread."""
    train, known = loaded.options.train, inspect.signature(model_class).parameters
    pace = {"net_d_iters": train.net_d_iters, "net_d_init_iters": train.net_d_init_iters}
    for name in pace.keys() & train.model_fields_set - known.keys():
        with locate_errors(loaded, ("train", name)):
            raise InputError(Problem(f"{loaded.options.model_type} knows no {name}", advice="Remove it."))
    return {name: value for name, value in pace.items() if name in known}


def _averaging_of(loaded: LoadedOptions, model_class: Callable[..., Any]) -> dict[str, Any]:
    """Return how the average begins where it does so otherwise than by default, for a model that knows of it."""
    averaging = averaging_of(loaded.options.train, loaded.options.train.optim_g)
    if averaging == PLAIN:
        return {}
    if "averaging" not in inspect.signature(model_class).parameters:
        what = "ema_power, ema_update_after_step and ema_switch_iter"
        if averaging.of_optimizer:
            what = "schedule-free optimizers, whose result is an average"
        with locate_errors(loaded, ("train", "optim_g") if averaging.of_optimizer else ("train",)):
            raise InputError(Problem(f"{loaded.options.model_type} knows no {what}", advice="Remove them."))
    return {"averaging": averaging}


def _terms_of(loaded: LoadedOptions, model_class: Callable[..., Any], names: Mapping[int, str]) -> dict[str, Any]:
    """Return how losses take part where one does otherwise than by default, for a model that knows of it."""
    terms = {}
    for position, name in names.items():
        chosen = loaded.options.train.losses[position]
        term, schedule = LossTerm(target_of(loaded.options, chosen)), chosen.weight_schedule
        if schedule is not None:
            term = LossTerm(term.target, True, schedule.start_iter, schedule.ramp_iters, schedule.end_iter)
        if term == WHOLE:
            continue
        if "terms" not in inspect.signature(model_class).parameters:
            key = "weight_schedule" if term.is_scheduled else "target"
            with locate_errors(loaded, ("train", "losses", position, key)):
                raise InputError(Problem(f"{loaded.options.model_type} knows no {key} of losses", advice="Remove it."))
        terms[name] = term
    return {"terms": terms} if terms else {}
