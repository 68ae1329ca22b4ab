"""Weights of any of the networks known here: which one, and with which arguments."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.recognition.recognised import Recognised, simplest
from trainauto.tasks.sr.recognition.rules import RULES, Guess


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Return the network that weights are of; ``None`` where no network known here has these names and shapes.

    What is returned has been built (on no device) and has the very parameters that the weights hold.

    Args:
        state: weights by name, those of old ESRGAN files under the names of today.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    for rule in RULES:
        guess = rule(shapes)
        if guess is not None and (recognised := _confirmed(guess, shapes)) is not None:
            return recognised
    return None


def _confirmed(guess: Guess, shapes: Mapping[str, tuple[int, ...]]) -> Recognised | None:
    """Return a guess with the arguments that have to be written, if the network it describes has these weights."""
    name, arguments = simplest(guess.names, ARCHS.get, guess.arguments)
    scale = {} if guess.scale is None else {"scale": guess.scale}
    try:
        with torch.device("meta"):
            network: nn.Module = ARCHS.get(name)(**scale, **arguments)
    except ValueError:
        return None
    if not _has_the_weights(network, shapes):
        return None
    return Recognised(guess.title, name, guess.scale, guess.sizes, arguments, guess.unsure)


def _has_the_weights(network: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether all parameters are there in their shapes, and nothing unknown; some files leave buffers out."""
    parameters = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    return all(shapes.get(name) == shape for name, shape in parameters.items()) and shapes.keys() <= (
        network.state_dict().keys()
    )
