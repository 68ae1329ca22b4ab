"""Weights of any of the networks known here: which one, and with which arguments."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.core.errors import InputError
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.recognition.community_rules import COMMUNITY_RULES
from trainauto.tasks.sr.recognition.declared import declared
from trainauto.tasks.sr.recognition.dilated_rule import of_dilated_windows
from trainauto.tasks.sr.recognition.library_rule import of_library
from trainauto.tasks.sr.recognition.recognised import Recognised, simplest
from trainauto.tasks.sr.recognition.rules import RULES, Guess, Shapes

_LARGEST_UNTOLD = 256
"""Largest number that metadata may say where the weights tell another one, for networks that are built for real."""
_TRAINING = ("img_size", "drop_rate", "attn_drop_rate", "drop_path_rate", "drop_path", "dropout", "res_scale")
"""Arguments of the library's networks that change nothing of what trained weights compute."""
_WIDTHS = (
    "aim_reduction_ratio",
    "c_ratio",
    "compress_ratio",
    "conv_ratio",
    "expansion_factor",
    "expansion_msg",
    "expansion_ratio",
    "ffn_expansion_factor",
    "ffn_expansion_ratio",
    "ffn_scale",
    "mid_dim",
    "mlp_ratio",
    "reduction",
    "split_ratio",
    "squeeze_factor",
    "upsample_dim",
)
"""Those that do nothing but to give weights their shapes. Windows and the like may fit any weights and still compute
something else: what spandrel says of them stays."""


def recognise(state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Recognised | None:
    """Return the network that weights are of; ``None`` where no network known here has these names and shapes.

    The rules of this package come first, then those of spandrel where it is installed. A result with a ``name`` has
    been built, and its parameters match the weights. It is built on the meta device, or with weights that are
    discarded; random generators keep their states. A result without a ``name`` is a network that spandrel knows and
    this package does not offer.

    Args:
        state: weights by name, those of old ESRGAN files under the names of today.
        metadata: what their file says of them; believed where it fits the weights.
    """
    told = _told(state)
    said = declared(metadata) if metadata else None
    if said is None:
        return told
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if not _declared_fits(said, told, shapes):
        return told
    return said if told is None else replace(said, title=told.title, sizes=told.sizes)


def _declared_fits(said: Recognised, told: Recognised | None, shapes: Shapes) -> bool:
    """Whether the network that metadata name has these weights.

    Some of the library's cannot be built on no device. They are built for real if what they declare is about as large
    as what the weights tell: metadata alone could ask for any amount of memory.
    """
    with torch.device("meta"):
        if _has_the_weights(said.name, said.scale, said.arguments, shapes):
            return True
    declared_all, told_all = _all_arguments(said), _all_arguments(told)
    if declared_all.keys() != told_all.keys() or not told_all:
        return False
    if not all(value == told_all[key] or _is_small(value, told_all[key]) for key, value in declared_all.items()):
        return False
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _has_the_weights(said.name, said.scale, said.arguments, shapes)


def _all_arguments(network: Recognised | None) -> dict[str, Any]:
    """Return every argument of one of the library's networks; nothing of others."""
    table = getattr(ARCHS.get(network.name), "library_network", None) if network and network.name else None
    return {**table.defaults_of(network.name), **network.arguments} if network and table else {}


def _is_small(value: Any, told: Any) -> bool:
    if isinstance(value, list):
        return isinstance(told, list) and len(value) == len(told) and all(map(_is_small, value, told))
    return not isinstance(value, int | float) or abs(value) <= _LARGEST_UNTOLD


def _told(state: Mapping[str, Tensor]) -> Recognised | None:
    """Return the network that weights are of, by themselves."""
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    for rule in (lambda _: of_dilated_windows(state), *RULES, *COMMUNITY_RULES):
        try:
            guess = _completed(rule(shapes), state)
        except (KeyError, IndexError, ValueError, ZeroDivisionError):  # names half match those of the network
            continue
        if guess is not None and (recognised := _ours(guess, shapes)) is not None:
            return recognised
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of networks that are built only to be compared
        guess = of_library(state)
        return None if guess is None else _of_library(guess, shapes)


def _completed(guess: Guess | None, state: Mapping[str, Tensor]) -> Guess | None:
    """Return a guess with the arguments that entries of the file hold, where they have data."""
    if guess is None:
        return None
    said = {
        argument: entry.flatten()[place].item()
        for argument, (name, place) in guess.held.items()
        if type(entry := state.get(name)) is Tensor and not entry.is_meta
    }
    if "scale" in said:
        guess = replace(guess, scale=int(said.pop("scale")), unsure="")
    return replace(guess, arguments={**guess.arguments, **said})


def _ours(guess: Guess, shapes: Shapes) -> Recognised | None:
    """Return a guess with the arguments that have to be written, if the network it describes has these weights."""
    name, arguments = simplest(guess.names, ARCHS.get, guess.arguments)
    with torch.device("meta"):
        if not _has_the_weights(name, guess.scale, arguments, shapes):
            return None
    return Recognised(guess.title, name, guess.scale, guess.sizes, arguments, guess.unsure)


def _of_library(guess: Guess, shapes: Shapes) -> Recognised:
    """Return a guess of spandrel's without the arguments whose defaults compute the same from these weights."""
    if not guess.names:
        return Recognised(guess.title, "", guess.scale, guess.sizes)
    name, arguments = guess.names[0], dict(guess.arguments)
    if not _has_the_weights(name, guess.scale, arguments, shapes):
        return Recognised(guess.title, "", guess.scale, guess.sizes)
    for key in [key for key in arguments if key in (*_TRAINING, *_WIDTHS)]:
        fewer = {other: value for other, value in arguments.items() if other != key}
        if _has_the_weights(name, guess.scale, fewer, shapes):
            arguments = fewer
    return Recognised(guess.title, name, guess.scale, guess.sizes, arguments)


def _has_the_weights(name: str, scale: int | None, arguments: Mapping[str, Any], shapes: Shapes) -> bool:
    """Whether a network has all parameters in these shapes, and knows all names.

    Some files leave buffers out, and parameters that the network lists as ``optional_weights``.
    """
    try:
        network: nn.Module = ARCHS.get(name)(**({} if scale is None else {"scale": scale}), **arguments)
    except (ValueError, TypeError, InputError):
        return False
    parameters = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    # Files hold buffers, too, that a network makes from its arguments: their shapes tell windows.
    held = {**dict(network.named_buffers()), **network.state_dict()}
    own = {name: tuple(value.shape) for name, value in held.items()}
    needed = parameters.keys() - getattr(network, "optional_weights", frozenset())
    return needed <= shapes.keys() and all(own.get(name) == shape for name, shape in shapes.items())
