"""Whether the options of a discriminator and the model fit together."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from trainauto.archs import ARCHS, is_discriminator
from trainauto.builders.file_checks import is_valid
from trainauto.builders.losses import judges
from trainauto.core.errors import InputError
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Component, Options
from trainauto.options.source_locations import KeyPath, dotted
from trainauto.options.validation_errors import Finding, in_file_order
from trainauto.tasks.sr.losses import GANLoss
from trainauto.tasks.sr.models import MODELS

KEYS = (
    ("network_d",),
    ("path", "pretrain_network_d"),
    ("path", "param_key_d"),
    ("path", "strict_load_d"),
    ("train", "optim_d"),
    ("train", "net_d_iters"),
    ("train", "net_d_init_iters"),
)
"""Options that only a model with a discriminator reads."""


def discriminator_options(
    loaded: LoadedOptions, model_class: Callable[..., Any], losses: Mapping[int, nn.Module]
) -> tuple[Component | None, Component | None]:
    """Return network and optimizer of the discriminator; ``None`` for a model whose constructor takes no ``network_d``.

    Args:
        loaded: the options.
        model_class: constructor of the model.
        losses: built from ``train.losses``, by their place in it.

    Raises:
        InputError: the model has a discriminator and something of it is missing, or it has none and something is there.
    """
    options = loaded.options
    _refuse(loaded, model_class, [position for position, loss in losses.items() if isinstance(loss, GANLoss)])
    return (options.network_d, options.train.optim_d) if _takes_one(model_class) else (None, None)


def check_discriminator(loaded: LoadedOptions[Any], path: KeyPath, tree: Any) -> None:
    """Check that model, discriminator and losses of a file fit together, as far as they are valid.

    Raises:
        InputError: as of :func:`discriminator_options`.
    """
    del path, tree
    options = loaded.options
    if (
        all(is_valid(loaded, key) for key in ("model_type", *(key for key, *_ in KEYS)))
        and options.model_type in MODELS
    ):
        judging = [judges(loss.type) for loss in options.train.losses]
        if None not in judging:
            positions = [position for position, one in enumerate(judging) if one]
            _refuse(loaded, MODELS.get(options.model_type), positions)


def _refuse(loaded: LoadedOptions, model_class: Callable[..., Any], judging: Sequence[int]) -> None:
    """Refuse what is missing, and what is left over.

    Args:
        loaded: the options.
        model_class: constructor of the model.
        judging: places of the losses of a discriminator.
    """
    findings = (_missing if _takes_one(model_class) else _left_over)(loaded.options, judging)
    problems = [finding.problem(loaded.places) for finding in findings]
    if problems:
        raise InputError(in_file_order(problems, loaded.places.of_key(()).file))


def _takes_one(model_class: Callable[..., Any]) -> bool:
    return "network_d" in inspect.signature(model_class).parameters


def crop_is_judged_alone(loaded: LoadedOptions) -> str | None:
    """Return the name of a discriminator that judges images of one size; ``None`` where there is none such.

    Raises:
        InputError: crops have another size.
    """
    options = loaded.options
    if options.network_d is None:
        return None
    constructor = ARCHS.get(options.network_d.type)
    argument = inspect.signature(constructor).parameters.get("input_size")
    if argument is None or not is_discriminator(constructor):
        return None
    side, lq_size = options.network_d.arguments.get("input_size", argument.default), options.datasets.train.lq_size
    if lq_size * options.scale == side:
        return options.network_d.type
    message = (
        f"crops are {lq_size * options.scale} px (lq_size {lq_size} at scale {options.scale}), and "
        f"{options.network_d.type} judges images of {side} px alone"
    )
    fits = isinstance(side, int) and not side % options.scale
    advice = f"Write lq_size: {side // options.scale}." if fits else "Take a discriminator for any size, such as dunet."
    raise InputError(Finding(("datasets", "train", "lq_size"), message, advice).problem(loaded.places))


def _missing(options: Options, judging: Sequence[int]) -> Iterator[Finding]:
    needs = f"model_type {options.model_type} needs"
    if options.network_d is None:
        yield Finding(("model_type",), f"{needs} network_d", "Add `network_d: {type: unetdiscriminatorsn}`.")
    if options.train.optim_d is None:
        advice = "Add it to train, e.g. `optim_d: {type: Adam, lr: 1e-4}`."
        yield Finding(("train", "optim_d"), f"{needs} train.optim_d", advice, at_key=True)
    if not judging:
        advice = "Add `- {type: ganloss, gan_type: vanilla, loss_weight: 0.1}`."
        yield Finding(("train", "losses"), f"{needs} a ganloss among train.losses", advice, at_key=True)
    for position in judging[1:]:
        message = "there is more than one ganloss, and the discriminator learns from one"
        yield Finding(("train", "losses", position, "type"), message, "Remove it.")


def _left_over(options: Options, judging: Sequence[int]) -> Iterator[Finding]:
    has_none = f"and model_type {options.model_type} has none"
    advice = "Write model_type: SRGANModel, or remove it."
    for path in _given(options):
        yield Finding(path, f"{dotted(path)} is about a discriminator, {has_none}", advice, at_key=True)
    for position in judging:
        path = ("train", "losses", position, "type")
        yield Finding(path, f"{options.train.losses[position].type} needs a discriminator, {has_none}", advice)


def _given(options: Options) -> Iterator[KeyPath]:
    for path in KEYS:
        section = options if len(path) == 1 else getattr(options, path[0])
        default = type(section).model_fields[path[-1]].default
        if path[-1] in section.model_fields_set and getattr(section, path[-1]) != default:
            yield path
