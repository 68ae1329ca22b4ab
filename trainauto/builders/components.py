"""Components by name with checked arguments, and problems with their place in the option file."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from trainauto.core.errors import InputError, Place, Problem
from trainauto.core.registry import Registry
from trainauto.options.component_arguments import check_arguments
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.source_locations import KeyPath


@contextmanager
def locate_errors(loaded: LoadedOptions[FileOptions], path: KeyPath) -> Iterator[None]:
    """Give problems raised inside the place of an option, where they have none."""
    try:
        yield
    except InputError as error:
        raise InputError(
            [p if p.place else replace(p, place=_place(loaded, path, p.argument)) for p in error.problems]
        ) from error


def _place(loaded: LoadedOptions[FileOptions], path: KeyPath, argument: str) -> Place:
    path = (*path, *argument.split(".")) if argument else path
    key, value = loaded.places.of_key(path), loaded.places.of_value(path)
    # The value of a section begins at its first key, on the next line; the section's own name says more.
    return value if value.line == key.line else key


def checked_arguments(
    loaded: LoadedOptions[FileOptions],
    registry: Registry[Any],
    path: KeyPath,
    name: str,
    arguments: Mapping[str, Any],
    filled_in: Set[str] = frozenset(),
    later: Set[str] = frozenset(),
) -> dict[str, Any]:
    """Return the arguments that the option file gives a registered component, as its constructor takes them.

    Args:
        loaded: the options it is for.
        registry: where to look it up.
        path: where it stands in the options.
        name: its registered name.
        arguments: what the option file gives it.
        filled_in: names of arguments that the framework gives where the file does not.
        later: names of those that it alone gives.

    Raises:
        InputError: unknown name, or arguments it does not take.
    """
    with locate_errors(loaded, (*path, "type")):
        constructor = registry.get(name)
    return check_arguments(
        constructor,
        arguments,
        path=path,
        places=loaded.places,
        kind=registry.kind,
        name=name,
        supplied=later,
        filled_in=filled_in,
    )


def build_component(
    loaded: LoadedOptions[FileOptions],
    registry: Registry[Any],
    path: KeyPath,
    name: str,
    arguments: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    later: frozenset[str] = frozenset(),
) -> Callable[..., Any]:
    """Return the constructor of a registered component, bound to its checked arguments and what the framework gives.

    Args:
        loaded: the options it is for.
        registry: where to look it up.
        path: where it stands in the options.
        name: its registered name.
        arguments: what the option file gives it.
        given: what the framework gives it; what it does not take is left out, what the file sets too is the file's.
        later: names of the positional arguments the constructor will be called with.

    Raises:
        InputError: unknown name, or arguments it does not take; the constructor raises it for values it refuses.
    """
    with locate_errors(loaded, (*path, "type")):
        constructor = registry.get(name)
    parameters = inspect.signature(constructor).parameters
    filled_in = {key: value for key, value in (given or {}).items() if key in parameters and key not in arguments}
    checked = checked_arguments(loaded, registry, path, name, arguments, filled_in.keys(), later)

    def construct(*positional: Any) -> Any:
        with locate_errors(loaded, path):
            try:
                return constructor(*positional, **filled_in, **checked)
            except InputError as error:
                said = [replace(p, message=f"{registry.kind} '{name}': {p.message}") for p in error.problems]
                raise InputError(said) from error
            except (ValueError, TypeError) as error:
                # Most such messages begin with the argument they are about.
                argument = str(error).split(" ", 1)[0]
                problem = Problem(
                    f"{registry.kind} '{name}': {error}", argument=argument if argument in checked else ""
                )
                raise InputError(problem) from error
            except (RuntimeError, MemoryError) as error:
                from trainauto.memory.monitor.oom import allocator_message, in_words, is_out_of_memory

                if not is_out_of_memory(error):
                    raise
                what = f"{registry.kind} '{name}' does not fit into memory: {in_words(allocator_message(error))}"
                advice = "Write smaller values, or free memory that other programs hold."
                raise InputError(Problem(what, advice=advice)) from error

    return construct
