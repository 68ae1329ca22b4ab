"""Names of a package that are loaded when they are first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: dict[str, Any], where: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    Args:
        package: its ``globals()``; what was loaded is kept there.
        where: the module of each name.
    """

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module '{package['__name__']}' has no attribute '{name}'")
        value = package[name] = getattr(import_module(where[name]), name)
        return value

    return load
