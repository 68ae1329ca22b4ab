"""Network, losses, optimizer and schedule from options."""

import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.archs import ARCHS, is_discriminator
from trainauto.builders.components import build_component, locate_errors
from trainauto.builders.discriminator import discriminator_options
from trainauto.builders.losses import build_losses, labels, target_of
from trainauto.builders.pretrained import load_start
from trainauto.builders.schedules import build_shape
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import SizeRequirements
from trainauto.core.process import without_garbage_collection
from trainauto.core.run_events import LengthUnit
from trainauto.core.words import counted
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.tracing.host_reads import place_of_error
from trainauto.models.activation_checkpointing import ActivationCheckpointingError, in_words
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim import OPTIMIZERS
from trainauto.optim.precision import Precision
from trainauto.optim.schedules import RateSchedule
from trainauto.options.combination_checks import image_sets
from trainauto.options.load import LoadedOptions
from trainauto.options.resource_options import AUTO
from trainauto.options.run_options import FileOptions, RunOptions
from trainauto.options.schema import Component, Options
from trainauto.tasks.sr.losses.term import WHOLE, LossTerm
from trainauto.tasks.sr.models import MODELS

logger = logging.getLogger(__name__)

COMPILER = "torch._dynamo"

IMAGE_SETS = frozenset({"gtimagedataset", "pairedimagedataset", "realesrgandataset", "realesrganpaireddataset"})
IMAGE_CHANNELS = (1, 3)
"""What images of these sets are read as."""


def choose_precision(loaded: LoadedOptions[FileOptions], ranks: Communicator = SINGLE_PROCESS) -> Precision:
    """Choose device and number format, and set torch up accordingly."""
    options = loaded.options
    if options.num_threads is not None:
        torch.set_num_threads(options.num_threads)
    if torch.are_deterministic_algorithms_enabled() != options.deterministic:
        torch.use_deterministic_algorithms(options.deterministic)  # loads torch's compiler
    has_cuda = torch.cuda.is_available()
    if options.device == "cuda" and not has_cuda:
        with locate_errors(loaded, ("device",)):
            raise InputError(
                Problem("torch finds no CUDA device", advice="Use `device: auto`, or install torch for CUDA.")
            )
    use_cuda = has_cuda and options.device != "cpu"
    if use_cuda and ranks.world_size > 1:  # pragma: no cuda
        _take_gpu(loaded, ranks.local_rank)
    device = torch.device("cuda", torch.cuda.current_device()) if use_cuda else torch.device("cpu")
    dtype = (torch.bfloat16 if options.amp_bf16 else torch.float16) if options.use_amp else torch.float32
    return Precision(device, dtype)


def load_compiler() -> None:
    """Load torch's compiler, as the first optimizer does, but out of the garbage collector's sight."""
    if COMPILER not in sys.modules:
        with without_garbage_collection():
            importlib.import_module(COMPILER)


def _take_gpu(loaded: LoadedOptions[FileOptions], local_rank: int) -> None:  # pragma: no cuda
    """Take the GPU of this rank. Two ranks on one card would share its memory and gain nothing."""
    device = torch.device("cuda", local_rank)
    if local_rank >= torch.cuda.device_count():
        with locate_errors(loaded, ("device",)):
            message = f"rank {local_rank} of this machine has no GPU: there are {torch.cuda.device_count()}"
            raise InputError(Problem(message, advice="Lower --nproc-per-node, or widen CUDA_VISIBLE_DEVICES."))
    torch.cuda.set_device(device)


def build_network(loaded: LoadedOptions, *, pretrained: bool = True) -> nn.Module:
    """Build the network, check that it enlarges as it should, and load pretrained weights if wanted."""
    options, chosen = loaded.options, loaded.options.network_g
    with locate_errors(loaded, ("network_g", "type")):
        if is_discriminator(ARCHS.get(chosen.type)):
            raise InputError(
                Problem(f"network '{chosen.type}' judges images and enlarges none", advice="Write it as network_d.")
            )
    network: nn.Module = build_component(
        loaded, ARCHS, ("network_g",), chosen.type, chosen.arguments, {"scale": options.scale, "upscale": options.scale}
    )()
    with locate_errors(loaded, ("network_g",)):
        _check_input(options, network)
        _check_output(network, chosen.type, options.scale)
    if pretrained:
        load_start(loaded, network, "g", options.path.pretrain_network_g)
    return network


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
        extras["make_optimizer_d"] = optimizer_maker(loaded, "optim_d", optim_d)
        extras |= _pace_of(loaded, model_class)
    extras |= _terms_of(loaded, model_class, {position: names[position] for position in losses})
    model: BaseModel = model_class(
        network,
        {names[position]: loss for position, loss in losses.items()},
        optimizer_maker(loaded, "optim_g", options.train.optim_g),
        precision,
        ema_decay=options.train.ema_decay,
        channels_last=options.use_channels_last,
        compile_network=options.use_compile,
        **extras,
    )
    checkpoint_gradients(loaded, model)
    return model


def checkpoint_gradients(loaded: LoadedOptions[RunOptions], model: BaseModel) -> None:
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


def optimizer_maker(loaded: LoadedOptions[RunOptions], key: str, chosen: Component) -> Callable[..., Optimizer]:
    """Return what makes the optimizer that stands under a key of ``train``, from parameters.

    Raises:
        InputError: there is no such optimizer, or it does not take these arguments.
    """
    return build_component(
        loaded, OPTIMIZERS, ("train", key), chosen.type, chosen.arguments, later=frozenset({"params"})
    )


def _build_discriminator(loaded: LoadedOptions, chosen: Component, channels: int, *, pretrained: bool) -> nn.Module:
    """Build the discriminator, check that it judges the images there are, and load pretrained weights if wanted."""
    network: nn.Module = build_component(loaded, ARCHS, ("network_d",), chosen.type, chosen.arguments)()
    with locate_errors(loaded, ("network_d",)):
        if hasattr(network, "scale") and not is_discriminator(type(network)):
            discriminators = ", ".join(name for name in ARCHS if is_discriminator(ARCHS.get(name)))
            message = f"network '{chosen.type}' enlarges images and judges none"
            raise InputError(Problem(message, argument="type", advice=f"Known discriminators: {discriminators}."))
        if channels_of(network) != channels:
            message = f"the discriminator judges images of {channels_of(network)} channels, and there are {channels}"
            raise InputError(Problem(message, advice=f"Write num_in_ch: {channels}."))
    if pretrained:
        load_start(loaded, network, "d", loaded.options.path.pretrain_network_d)
    return network


def _pace_of(loaded: LoadedOptions, model_class: Callable[..., Any]) -> dict[str, int]:
    """Return how often the generator steps, for a model that knows of it; refuse what it would leave unread."""
    train, known = loaded.options.train, inspect.signature(model_class).parameters
    pace = {"net_d_iters": train.net_d_iters, "net_d_init_iters": train.net_d_init_iters}
    for name in pace.keys() & train.model_fields_set - known.keys():
        with locate_errors(loaded, ("train", name)):
            raise InputError(Problem(f"{loaded.options.model_type} knows no {name}", advice="Remove it."))
    return {name: value for name, value in pace.items() if name in known}


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


def run_length(options: Options) -> tuple[int, LengthUnit]:
    """Return the length of a run and what it is counted in."""
    if options.train.total_iter is not None:
        return options.train.total_iter, "steps"
    return options.train.total_samples or 0, "samples"


LEAST_FIRST_WEIGHTS = 0.1
"""Share of the first weights in the average at the end of a run from which on that is said."""
_AVERAGED_OVER = 5
"""Times that a run is to be longer than what its average reaches back: 1 % of the first weights is left then."""


def warn_of_short_run(options: Options, world_size: int = 1) -> None:
    """Say so where a run is too short for its average: it would be validated mostly by weights it began with."""
    train = options.train
    decay = train.ema_decay
    samples = options.datasets.train.batch_size_per_gpu * options.datasets.train.accum_iter * world_size
    steps = train.total_iter or (train.total_samples or 0) // samples
    if not decay or decay**steps < LEAST_FIRST_WEIGHTS:
        return
    fitting = 1 - float(f"{_AVERAGED_OVER / steps:.1g}") if steps > 2 * _AVERAGED_OVER else 0.0
    logger.warning(
        "ema_decay %g averages weights over about %.0f steps, and this run has %d: what is validated and saved is to "
        "%.0f %% what the network began with. `ema_decay: %g` under train suits its length",
        decay,
        1 / (1 - decay),
        steps,
        100 * decay**steps,
        fitting,
    )


def build_schedule(loaded: LoadedOptions[RunOptions], model: BaseModel, total: int, unit: LengthUnit) -> RateSchedule:
    """Build the schedule of the learning rate over the length of a run, from the rates the optimizers have now."""
    train, shape = loaded.options.train, build_shape(loaded, total)
    warmup = train.warmup_steps or train.warmup_ratio * total
    for optimizer in model.optimizers.values():
        RateSchedule.remember_rates(optimizer)
    return RateSchedule(shape, total, unit, warmup)
