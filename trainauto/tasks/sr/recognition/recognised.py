"""What weights say of the network that they are of."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Recognised:
    """A network told from its weights.

    Attributes:
        title: the architecture as people call it, e.g. ``ESRGAN``.
        name: registered name that builds it with the fewest arguments; empty where there is no such network here.
        scale: enlargement factor; ``None`` of a discriminator.
        sizes: what tells it from others of its kind, in words: ``("64 features", "23 blocks")``.
        arguments: those that differ from the defaults of ``name``, without the scale.
        unsure: what weights do not tell, in words.
    """

    title: str
    name: str
    scale: int | None
    sizes: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    unsure: str = ""

    def in_words(self) -> str:
        """Return ``ESRGAN x4, 64 features, 23 blocks``."""
        scale = f" x{self.scale}" if self.scale is not None else ""
        return ", ".join([f"{self.title}{scale}", *self.sizes])

    def as_option(self, key: str, scale: int | None = None) -> str:
        """Return what to write under a key of an option file, with `scale` before it where it is not the file's.

        Args:
            key: ``network_g`` or ``network_d``.
            scale: of the option file.
        """
        written = ", ".join(
            f"{name}: {_written(value)}" for name, value in {"type": self.name, **self.arguments}.items()
        )
        network = f"`{key}: {{ {written} }}`"
        return network if self.scale in (None, scale) else f"`scale: {self.scale}` and {network}"


def _written(value: object) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_written, value))}]"
    return "''" if value == "" else str(value)


def simplest(
    names: Sequence[str], constructors: Callable[[str], Callable[..., Any]], arguments: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the one of several names that needs the fewest arguments to build a network, and these.

    Args:
        names: registered names, an architecture's and those of its presets, which leave out some of its arguments.
        constructors: returns what a name stands for.
        arguments: all that the weights tell, the scale left out.
    """
    defaults = _defaults(constructors(names[0]))
    needed = {name: _needed(defaults, _defaults(constructors(name)), arguments) for name in names}
    able = {name: left for name, left in needed.items() if left is not None}
    name = min(able, key=lambda candidate: len(able[candidate]))
    return name, able[name]


def _defaults(constructor: Callable[..., Any]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(constructor).parameters.items()}


def _needed(
    general: Mapping[str, Any], preset: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return arguments that differ from a preset's defaults; ``None`` where one does that it does not take."""
    defaults = {**general, **preset}
    differing = {name: value for name, value in arguments.items() if not _same(defaults[name], value)}
    return differing if differing.keys() <= preset.keys() else None


def _same(default: object, value: object) -> bool:
    if isinstance(default, tuple | list) and isinstance(value, tuple | list):
        return list(default) == list(value)
    return bool(default == value)
