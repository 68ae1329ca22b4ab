"""Components by name with checked arguments, and problems with their place in the option file."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.registry import Registry
from trainauto.options.arguments import check_arguments
from trainauto.options.load import LoadedOptions
from trainauto.options.places import KeyPath


@contextmanager
def placed(loaded: LoadedOptions, path: KeyPath) -> Iterator[None]:
    """Give problems raised inside the place of an option, where they have none."""
    try:
        yield
    except InputError as error:
        place = loaded.places.of_value(path)
        raise InputError(
            [problem if problem.place else Problem(problem.what, place, problem.advice) for problem in error.problems]
        ) from error


def component(
    loaded: LoadedOptions,
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
    with placed(loaded, (*path, "type")):
        constructor = registry.get(name)
    taken = inspect.signature(constructor).parameters
    supplied = {key: value for key, value in (given or {}).items() if key in taken and key not in arguments}
    checked = check_arguments(
        constructor,
        arguments,
        path=path,
        places=loaded.places,
        kind=registry.kind,
        name=name,
        supplied=later.union(supplied),
    )

    def construct(*positional: Any) -> Any:
        with placed(loaded, path):
            try:
                return constructor(*positional, **supplied, **checked)
            except (ValueError, TypeError) as error:
                raise InputError(f"{registry.kind} '{name}': {error}") from error

    return construct
