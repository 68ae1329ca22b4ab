"""The constructors that option files name: one a published network, with traiNNer's keys and its sizes as defaults."""

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
            registry.register(name, *aliases)(constructor_of(network, name))


def constructor_of(network: LibraryNetwork, name: str) -> Callable[..., nn.Module]:
    """Return a function that builds a published network from what differs from its defaults.

    Besides signature and docstring it has the attributes ``library_network``, and ``preset_of``: the name of the
    network of the same table whose arguments are described in full, empty for that one.
    """
    defaults = {SCALE: _usual_scale(network), **network.defaults_of(name)}

    def construct(**arguments: Any) -> nn.Module:
        signature.bind(**arguments)
        return build(network, {**defaults, **arguments})

    parameters = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_type_of(network, key))
        for key, default in defaults.items()
    ]
    signature = inspect.Signature(parameters, return_annotation=nn.Module)
    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = "\n".join(_docstring(network, defaults))
    first = next(iter(network.presets))
    facts = {"__signature__": signature, "library_network": network, "preset_of": "" if name == first else first}
    construct.__dict__.update(facts)
    return construct


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
