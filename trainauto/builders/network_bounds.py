"""Networks far too large to be intended are refused quickly, before they fill the memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.core.free_memory import free_memory_bytes
from trainauto.core.units import size_text
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.options.load import LoadedOptions
from trainauto.options.source_locations import KeyPath

LARGEST_SIZE = 2**16
"""Channels, blocks, heads or pixels that an argument of a network may count: published ones stay below 5,000."""
MOST_TENSORS = 20_000
"""Tensors of weights: the largest published networks that enlarge images have about 5,000."""

_SMALLER = "Write fewer blocks or channels."


def refuse_sizes(loaded: LoadedOptions[Any], path: KeyPath, arguments: Mapping[str, Any]) -> None:
    """Refuse whole numbers that no network has of anything; only to count to them takes minutes.

    Raises:
        InputError: names the first.
    """
    for name, value in arguments.items():
        if any(size > LARGEST_SIZE for size in _whole_numbers(value)):
            with locate_errors(loaded, path):
                message = f"{name} is above {LARGEST_SIZE}, which no network has of anything"
                raise InputError(Problem(message, advice=_SMALLER, argument=name))


def _whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _whole_numbers(item)
    elif isinstance(value, dict):
        yield from _whole_numbers(list(value.values()))
    elif isinstance(value, int):
        yield value


@contextmanager
def within_reason(what: str) -> Iterator[None]:
    """Watch a network being built, and refuse it once its parts are too many, or fill half of the free memory.

    Weights are seen when they are made and before they are filled: until then they take no memory.

    Args:
        what: is built, in words.

    Raises:
        InputError: it was too large.
    """
    room_bytes = (free_memory_bytes() or 2**63) // 2
    tensors = weights_bytes = 0

    def count(_module: nn.Module, _name: str, weights: nn.Parameter | None) -> None:
        nonlocal tensors, weights_bytes
        if weights is None:
            return
        tensors += 1
        weights_bytes += weights.numel() * weights.element_size() if weights.device.type != "meta" else 0
        if tensors > MOST_TENSORS:
            raise InputError(Problem(f"it has more than {MOST_TENSORS} tensors of weights", advice=_SMALLER))
        if weights_bytes > room_bytes:
            message = f"it has more than {size_text(room_bytes)} of weights, half of the memory that is free here"
            raise InputError(Problem(message, advice=_SMALLER))

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        lines = str(error).splitlines()
        message = f"{what} does not fit the memory of this machine{f': {lines[0]}' if lines else ''}"
        raise InputError(Problem(message, advice=_SMALLER)) from error
    finally:
        hook.remove()
