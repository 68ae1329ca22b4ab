"""The constructors that option files name: one a published network, with traiNNer's keys and its sizes as defaults."""

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal

from torch import nn

from trainauto.core.registry import Registry
from trainauto.tasks.sr.spandrel_archs.argument_notes import NOTES
from trainauto.tasks.sr.spandrel_archs.network import build
from trainauto.tasks.sr.spandrel_archs.table import SCALE, LibraryNetwork

USUAL_SCALE = 4


def register_all(registry: Registry[Callable[..., nn.Module]], networks: tuple[LibraryNetwork, ...]) -> None:
    """Register each published network of the tables under its names."""
    for network in networks:
        for name in network.presets:
            aliases = [alias for alias, named in network.aliases.items() if named == name]
            registry.register(name, *aliases)(PublishedNetwork(network, name))


class PublishedNetwork:
    """Builds a published network from what differs from its defaults, as a function of its arguments would.

    Signature and docstring are made when they are asked for: making those of fifty networks takes long.

    Args:
        network: its table.
        name: its registered name.

    Attributes:
        library_network: its table.
        preset_of: registered name of the network of the same table that is described in full; empty for that one.
    """

    def __init__(self, network: LibraryNetwork, name: str) -> None:
        first = next(iter(network.presets))
        self.library_network, self.preset_of = network, "" if name == first else first
        self.__name__ = self.__qualname__ = name

    def __call__(self, **arguments: Any) -> nn.Module:
        """Build it.

        Raises:
            InputError: the library is not installed.
            TypeError: it has no such argument.
            ValueError: no network can be built from these arguments.
        """
        defaults = copy.deepcopy(self._defaults)
        if unknown := [key for key in arguments if key not in defaults]:
            raise TypeError(f"{unknown[0]} is no argument of {self.__name__}")
        return build(self.library_network, {**defaults, **arguments})

    @property
    def __signature__(self) -> inspect.Signature:
        """What an option file may give it."""
        keyword, network = inspect.Parameter.KEYWORD_ONLY, self.library_network
        parameters = [
            inspect.Parameter(key, keyword, default=default, annotation=_type_of(network, key))
            for key, default in self._defaults.items()
        ]
        return inspect.Signature(parameters, return_annotation=nn.Module)

    @property
    def __doc__(self) -> str:  # type: ignore[override]  # of the network, not of this class
        return "\n".join(_docstring(self.library_network, self._defaults))

    @property
    def _defaults(self) -> dict[str, Any]:
        network = self.library_network
        return {SCALE: _usual_scale(network), **network.defaults_of(self.__name__)}


def _usual_scale(network: LibraryNetwork) -> int:
    return USUAL_SCALE if not network.scales or USUAL_SCALE in network.scales else network.scales[0]


def _docstring(network: LibraryNetwork, keys: dict[str, Any]) -> Iterator[str]:
    yield f"{network.summary}"
    yield ""
    yield "Args:"
    for key in keys:
        scales = f" One of {', '.join(map(str, network.scales))}." if key == SCALE and network.scales else ""
        yield f"    {key}: {NOTES[key]}{scales}"
    yield ""
    yield "Raises:"
    yield "    InputError: spandrel, which it is taken from, is not installed."
    yield "    ValueError: no network can be built from these arguments."
    yield ""
    yield "References:"
    yield f"    {network.paper}"


def _type_of(network: LibraryNetwork, key: str) -> Any:
    """Return the type of an argument: what the table says, else that of the published network's value."""
    if key in network.types:
        return network.types[key]
    if key in network.choices:
        return Literal[network.choices[key]]
    default = USUAL_SCALE if key == SCALE else network.defaults[key]
    if isinstance(default, list):
        return list[type(default[0])]  # type: ignore[misc]  # known at run time only
    return type(default)
