"""Weights that a network starts from, out of files of every layout; those of another network say which one."""

import importlib.util
import logging
from dataclasses import replace
from pathlib import Path
from typing import Literal

from torch import nn

from trainauto.builders.components import locate_errors
from trainauto.builders.run_weights import named_weights
from trainauto.core.errors import InputError, Problem
from trainauto.core.words import visible
from trainauto.models.usable_weights import check_values
from trainauto.models.weights import WeightDifferences, load_same
from trainauto.models.weights_file import FileWeights, read_weights
from trainauto.options.load import LoadedOptions
from trainauto.tasks.sr.archs.legacy_keys import modern_keys
from trainauto.tasks.sr.archs.spectral_norm import plain_name
from trainauto.tasks.sr.recognition import Recognised, recognise
from trainauto.tasks.sr.recognition.declared import declared
from trainauto.tasks.sr.spandrel_archs.library import INSTALL, SPANDREL

logger = logging.getLogger(__name__)


def load_start(loaded: LoadedOptions, network: nn.Module, which: Literal["g", "d"], chosen: str | None) -> None:
    """Load the weights a network starts from, where the option file names some; say what was taken and left out.

    Args:
        loaded: the options.
        network: what they are for.
        which: letter of the network in the keys of the option file.
        chosen: the file, or the folder of a run, as in :func:`named_weights`.

    Raises:
        InputError: they cannot be read, none fits, or (strict) not all do; at the place of the option.
    """
    if not chosen:
        return
    options, path = loaded.options, loaded.options.path
    with locate_errors(loaded, ("path", f"pretrain_network_{which}")):
        file = named_weights(chosen, which)
        if file != Path(chosen).expanduser():
            logger.info("weights of %s: %s", chosen, file)
        key, strict = (path.param_key_g, path.strict_load_g) if which == "g" else (path.param_key_d, path.strict_load_d)
        weights = modern_weights(file, key, network)
        if words := weights.in_words():
            logger.info("weights of %s: %s", file, words)
        differences = WeightDifferences.between(network, weights.tensors)
        if differences and (strict or not differences.same):
            ways = _ways_out(differences, which, len(weights.tensors))
            scale = options.scale if which == "g" else None
            raise InputError(mismatch(file, weights, network, differences, which, scale, ways))
        load_same(network, weights.tensors)
    said = declared(weights.metadata)
    if said is not None and which == "g" and said.scale != options.scale and not differences:
        logger.warning("%s says that its scale is %s, and this run's is %d", file, said.scale, options.scale)
    if differences:
        _say_what_was_left_out(file, weights, network, differences)


def _ways_out(differences: WeightDifferences, which: str, total: int) -> str:
    if not differences.same:
        return "None of its tensors fits this network."
    fitting = f"the {differences.same} of its {total} tensors that fit"
    return f"Or set `path: strict_load_{which}: false`, which takes {fitting}."


def _say_what_was_left_out(
    file: Path, weights: FileWeights, network: nn.Module, differences: WeightDifferences
) -> None:
    there, here = recognise(weights.tensors, weights.metadata), recognise(network.state_dict())
    kinds = f": it is {there.in_words()}, the network {here.in_words()}" if there and here and there != here else ""
    logger.warning("%d of %d tensors of %s fit and were taken%s", differences.same, len(weights.tensors), file, kinds)
    for line in differences.lines():
        logger.warning("left out: %s", line)


def modern_weights(file: Path, key: str | None, network: nn.Module) -> FileWeights:
    """Read the weights of a file, those of old ESRGAN files under the names of today.

    Args:
        file: what to read.
        key: entry that holds them; ``None`` takes the usual one.
        network: what they are for; beginnings of names that it has are left alone.

    Raises:
        InputError: as :func:`trainauto.models.weights_file.read_weights`, an old file of a variant that is not
            supported, or numbers that are no weights: NaN, infinite, integers, complex.
    """
    own = network.state_dict()
    weights = _modern(read_weights(file, key, own.keys()), file)
    names = {name: plain_name(name) if name not in own else name for name in weights.tensors}
    weights = replace(weights, tensors={names[name]: value for name, value in weights.tensors.items()})
    weights = weights.without_made(network)
    check_values(file, weights.tensors, own)
    return weights


def without_a_network(file: Path, key: str | None) -> FileWeights:
    """Read the weights of a file as :func:`modern_weights` does, for a network that they have to tell."""
    return _modern(read_weights(file, key), file)


def _modern(weights: FileWeights, file: Path) -> FileWeights:
    try:
        return replace(weights, tensors=modern_keys(weights.tensors))
    except ValueError as error:
        raise InputError(f"{file}: {error}") from error


def mismatch(
    file: Path,
    weights: FileWeights,
    network: nn.Module,
    differences: WeightDifferences,
    which: Literal["g", "d"],
    scale: int | None,
    ways_out: str = "",
) -> Problem:
    """Return what to say of weights of another network: which one they are of, and what to write.

    Args:
        file: where they come from.
        weights: they.
        network: what they should have been of.
        differences: between both.
        which: letter of the network in the keys of an option file.
        scale: of the option file; ``None`` of a discriminator.
        ways_out: what else could be done.
    """
    key = f"network_{which}"
    there, here = recognise(weights.tensors, weights.metadata), recognise(network.state_dict())
    if there is None or there == here:
        message = f"the weights in {file} are not of this network: {differences.text()}"
        advice = f"Check the arguments of {key}."
        if there is None and importlib.util.find_spec(SPANDREL) is None:
            advice = f"{advice} {SPANDREL} tells more networks from their weights: {INSTALL}"
        return Problem(message, advice=" ".join(filter(None, [advice, ways_out])))
    own = here.in_words() if here else f"a {visible(type(network).__name__)}"
    message = f"{file} is {there.in_words()}, and {key} is {own}"
    return Problem(message, advice=" ".join(filter(None, [_what_to_write(there, key, scale), ways_out])))


def _what_to_write(there: Recognised, key: str, scale: int | None) -> str:
    if not there.name:
        return "No network here is such a one: `python -m trainauto list archs` names those that are."
    if there.scale is None and key == "network_g":
        return "It judges images: name it as pretrain_network_d."
    unsure = f" ({there.unsure})" if there.unsure else ""
    return f"Write {there.as_option(key, scale)}{unsure}."
