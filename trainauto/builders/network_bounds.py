"""Networks far too large to be intended are refused quickly, before they fill the memory."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any, NoReturn

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem, TrainautoError
from trainauto.core.free_memory import free_memory_bytes
from trainauto.core.units import size_text
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.tracing.host_reads import place_of_error
from trainauto.options.load import LoadedOptions
from trainauto.options.source_locations import KeyPath

LARGEST_SIZE = 2**16
"""Channels, blocks, heads or pixels that an argument of a network may count: published ones stay below 5,000."""
MOST_TENSORS = 20_000
"""Tensors of weights: the largest published networks that enlarge images have about 5,000."""
MOST_TENSORS_OF_WORDS = 100_000
"""The same of language models, whose experts may have weights of their own."""

_SMALLER = "Write fewer blocks or channels."


def refuse_sizes(
    loaded: LoadedOptions[Any], path: KeyPath, arguments: Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> None:
    """Refuse whole numbers that no network has of anything; only to count to them takes minutes.

    Args:
        loaded: the option file.
        path: of the network.
        arguments: of the network.
        usual: defaults of a model whose arguments may count words, too: a thousand times these are refused.

    Raises:
        InputError: names the first.
    """
    for name, value in arguments.items():
        largest = LARGEST_SIZE if usual is None else max(LARGEST_SIZE, 1000 * _largest(usual.get(name), 2**63))
        if any(size > largest for size in _whole_numbers(value)):
            with locate_errors(loaded, path):
                message = f"{name} is above {largest}, which no network has of anything"
                raise InputError(Problem(message, advice=_SMALLER, argument=name))


def defaults_of(construct: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of a constructor's arguments: what is usual."""
    return {name: one.default for name, one in signature(construct).parameters.items()}


def largest_of(arguments: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Return the argument that is more times what is usual than any other; empty where none is a whole number."""
    given = {name: max(_whole_numbers(value), default=0) for name, value in arguments.items()}
    times = {name: size / max(1, _largest(usual.get(name), 1)) for name, size in given.items() if size}
    return max(times, key=times.__getitem__, default="")


def unusual_of(arguments: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Return an argument that a constructor probably fails at: below 1, or a list of another length than is usual.

    Where there is only one argument, that is it; where nothing tells, none.
    """
    for name, value in arguments.items():
        default = usual.get(name)
        is_below = min(_whole_numbers(value), default=1) < 1 <= min(_whole_numbers(default), default=1)
        if is_below or _is_of_other_length(value, default):
            return name
    return next(iter(arguments)) if len(arguments) == 1 else ""


def _is_of_other_length(value: Any, default: Any) -> bool:
    are_lists = isinstance(value, list | tuple) and isinstance(default, list | tuple)
    return are_lists and len(value) != len(default)


def _largest(value: Any, otherwise: int) -> int:
    return max(_whole_numbers(value), default=otherwise)


def _whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _whole_numbers(item)
    elif isinstance(value, dict):
        yield from _whole_numbers(list(value.values()))
    elif isinstance(value, int):
        yield value


@contextmanager
def within_reason(
    what: str, arguments: Mapping[str, Any], usual: Mapping[str, Any], most_tensors: int | None = None
) -> Iterator[None]:
    """Watch a network being built, and refuse it once its parts are too many, or fill half of the free memory.

    Weights are seen when they are made and before they are filled: until then they take no memory. Fake ones never do.

    Args:
        what: is built, in words.
        arguments: as they are given.
        usual: their defaults.
        most_tensors: of weights; ``None`` for those of networks that enlarge images.

    Raises:
        InputError: it was too large, or cannot be made; it names the argument that is probably at fault.
    """
    most = MOST_TENSORS if most_tensors is None else most_tensors
    room_bytes = (free_memory_bytes() or 2**63) // 2
    tensors = weights_bytes = 0

    def refuse(message: str) -> NoReturn:
        raise InputError(Problem(message, advice=_SMALLER, argument=largest_of(arguments, usual)))

    def count(_module: nn.Module, _name: str, weights: nn.Parameter | None) -> None:
        nonlocal tensors, weights_bytes
        if weights is None:
            return
        tensors += 1
        is_held = weights.untyped_storage().device.type != "meta"
        weights_bytes += weights.numel() * weights.element_size() if is_held else 0
        if tensors > most:
            refuse(f"it has more than {most} tensors of weights")
        if weights_bytes > room_bytes:
            refuse(f"it has more than {size_text(room_bytes)} of weights, half of the memory that is free here")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    except Exception as raised:  # constructors of many hands: they raise what they like
        error = raised
        while isinstance(error, TrainautoError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        if isinstance(raised, TrainautoError) and not is_out_of_memory(error):
            raise  # told already; a shortage is told of the whole component, and here its argument is known
        said = next(iter(str(error).splitlines()), "")
        if is_out_of_memory(error):
            message = f"{what} does not fit the memory of this machine{f': {said}' if said else ''}"
            problem = Problem(message, advice=_SMALLER, argument=largest_of(arguments, usual))
        else:
            message = f"{what} cannot be made: {type(error).__name__}{f': {said}' if said else ''}"
            problem = Problem(f"{message}, at {place_of_error(error)}", argument=unusual_of(arguments, usual))
        raise InputError(problem) from error
    finally:
        hook.remove()
