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
    **given: Any,
) -> Callable[..., Any]:
    """Return the constructor of a registered component, bound to its checked arguments and what the framework gives.

    Of ``given``, what the constructor does not take is left out, and what the file sets too is the file's.
    """
    with placed(loaded, (*path, "type")):
        constructor = registry.get(name)
    taken = inspect.signature(constructor).parameters
    supplied = {key: value for key, value in given.items() if key in taken and key not in arguments}
    checked = check_arguments(
        constructor,
        arguments,
        path=path,
        places=loaded.places,
        kind=registry.kind,
        name=name,
        supplied=frozenset(supplied),
    )

    def construct(*positional: Any) -> Any:
        with placed(loaded, path):
            try:
                return constructor(*positional, **supplied, **checked)
            except (ValueError, TypeError) as error:
                raise InputError(f"{registry.kind} '{name}': {error}") from error

    return construct
