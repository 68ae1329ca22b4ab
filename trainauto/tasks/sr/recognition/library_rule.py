"""Weights that spandrel recognises, in the words of the tables of its networks."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.core.words import counted
from trainauto.tasks.sr.recognition.rules import Guess
from trainauto.tasks.sr.spandrel_archs import LIBRARY_NETWORKS, all_architectures
from trainauto.tasks.sr.spandrel_archs.table import SCALE, LibraryNetwork

_FEATURES = ("embed_dim", "dim", "num_feat", "nf", "n_feats", "embedding_dim", "width")
"""Keys of a network's width, of which each has one that counts."""
_BLOCKS = ("depths", "depth", "n_blocks", "n_resblocks", "num_layers", "res_num", "n_block", "middle_blk_num")


def of_library(state: Mapping[str, Tensor]) -> Guess | None:
    """Return what spandrel takes weights for; ``None`` where it knows them not, or is not installed.

    The names of the guess are empty where spandrel knows a network that is not offered here.

    Args:
        state: weights by name.
    """
    try:
        known = all_architectures()
    except InputError:
        return None
    try:
        descriptor = known.load(dict(state))  # it renames what it is given
    except Exception:  # of an unknown network its own error, of a half known one whatever its constructor raises
        return None
    scale, model = int(descriptor.scale), descriptor.model
    kind = type(model).__name__
    for network in LIBRARY_NETWORKS:
        if network.architecture == str(descriptor.architecture.id) and kind in network.classes:
            arguments = {**network.from_library(model.hyperparameters), SCALE: scale}
            arguments = _with_what_chooses_the_class(network, arguments, kind)
            name, differing = network.nearest_preset(arguments)
            title = network.summary.partition(":")[0]
            return Guess(title, (name,), scale, tuple(_sizes(arguments)), differing)
    return Guess(str(descriptor.architecture.name), (), scale, tuple(map(str, descriptor.tags)), {})


def _with_what_chooses_the_class(network: LibraryNetwork, arguments: dict[str, Any], kind: str) -> dict[str, Any]:
    """Add the switches that choose among classes, which no constructor is given, as the class at hand needs them."""
    switches = [key for key, value in network.defaults.items() if isinstance(value, bool) and key not in arguments]
    for values in product((False, True), repeat=len(switches)):
        chosen = {**network.defaults, **arguments, **dict(zip(switches, values, strict=True))}
        with suppress(ValueError):
            if network.class_name(chosen) == kind:
                return {**arguments, **{key: chosen[key] for key in switches}}
    return arguments


def _sizes(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield width and depth in words."""
    for keys, noun in ((_FEATURES, "feature"), (_BLOCKS, "block")):
        value = next((arguments[key] for key in keys if key in arguments), None)
        if value is not None:
            yield counted(sum(value) if isinstance(value, list) else int(value), noun)
