"""What is known of a network of spandrel's: its arguments under traiNNer's names, its published sizes."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_positive_integers

SCALE = "scale"
DOUBLING_SCALES = (1, 2, 3, 4, 8)
"""What chains of pixel shuffles enlarge by: one by 3, or some by 2."""

Arguments = dict[str, Any]


def _no_windows(arguments: Mapping[str, Any]) -> Iterable[int]:
    del arguments
    return ()


def _any_side(arguments: Mapping[str, Any]) -> SizeRequirements:
    del arguments
    return SizeRequirements()


@dataclass(frozen=True)
class LibraryNetwork:
    """A network that spandrel implements.

    Attributes:
        architecture: spandrel's name of it, as ``ModelDescriptor.architecture.id``.
        module: where it is, as imported.
        classes: of the module; several where the class follows from the arguments, see ``class_of``.
        summary: what it is, in a sentence.
        paper: where it was published.
        defaults: argument by traiNNer's key and its default, scale left out. An argument's type is its default's.
        presets: registered name -> arguments in which that published network differs from ``defaults``; the first is
            the one that ``defaults`` stand for.
        aliases: further name -> registered name.
        renamed: traiNNer's key -> the library's, where they differ.
        values: traiNNer's key -> traiNNer's value -> the library's, where they differ.
        choices: traiNNer's key -> values it may have.
        types: traiNNer's key -> type, where the default does not say it all.
        scales: what it can enlarge by; empty where any whole number will do.
        channels: traiNNer's key of the input's channels; empty where there are always 3.
        windows: sides that crops should be multiples of, from arguments: others are padded by the network and cost as
            much as the next larger ones.
        accepts: sides that the library's own ``forward`` takes, from arguments; other images are padded before it.
        left_out: the library's arguments that no option file sets: modules, checkpointing, what never varied.
        class_of: the one of ``classes`` that has these arguments, where there are several.
        not_passed: class -> traiNNer's keys that its constructor does not take.
        unread: pattern of the names of weights that no forward pass reads: they are not trained, for ranks that sum
            gradients while they are computed would wait for theirs.
        kept_in_training: classes of modules that stay in training mode, for in the other they take one sample alone
            and decide by its values; both modes compute the same.
    """

    architecture: str
    module: str
    classes: tuple[str, ...]
    summary: str
    paper: str
    defaults: Mapping[str, Any]
    presets: Mapping[str, Mapping[str, Any]]
    aliases: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)
    scales: tuple[int, ...] = ()
    channels: str = ""
    windows: Callable[[Mapping[str, Any]], Iterable[int]] = _no_windows
    accepts: Callable[[Mapping[str, Any]], SizeRequirements] = _any_side
    left_out: tuple[str, ...] = ()
    class_of: Callable[[Mapping[str, Any]], str] | None = None
    not_passed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: str = ""
    kept_in_training: tuple[str, ...] = ()

    def defaults_of(self, name: str) -> Arguments:
        """Return the arguments of a published network by its registered name, scale left out."""
        return {**self.defaults, **self.presets[name]}

    def class_name(self, arguments: Mapping[str, Any]) -> str:
        """Return the name of the class that has these arguments (traiNNer's keys, scale included)."""
        return self.class_of(arguments) if self.class_of else self.classes[0]

    def to_library(self, arguments: Mapping[str, Any]) -> Arguments:
        """Return arguments under traiNNer's keys (scale included) as the library's constructor takes them."""
        not_passed = self.not_passed.get(self.class_name(arguments), ())
        return {
            self.renamed.get(key, key): self._translated(key, value)
            for key, value in arguments.items()
            if key not in not_passed
        }

    def _translated(self, key: str, value: Any) -> Any:
        return self.values[key].get(value, value) if key in self.values else value

    def from_library(self, hyperparameters: Mapping[str, Any]) -> Arguments:
        """Return what a built network of the library's says of itself (``hyperparameters``) under traiNNer's keys.

        What no option file can say (``left_out``) is not among it.
        """
        arguments: Arguments = {SCALE: self.scales[0]} if len(self.scales) == 1 else {}
        for key in (SCALE, *self.defaults):
            named = self.renamed.get(key, key)
            if named in hyperparameters:
                value = hyperparameters[named]
                back = {library: own for own, library in self.values.get(key, {}).items()}
                arguments[key] = back[value] if back else list(value) if isinstance(value, tuple) else value
        return arguments

    def nearest_preset(self, arguments: Mapping[str, Any]) -> tuple[str, Arguments]:
        """Return the published network that arguments differ least from, and those in which they differ."""
        differing = {
            name: {key: value for key, value in arguments.items() if key != SCALE and value != defaults[key]}
            for name in self.presets
            for defaults in (self.defaults_of(name),)
        }
        name = min(differing, key=lambda name: len(differing[name]))
        return name, differing[name]

    def size_requirements(self, arguments: Mapping[str, Any]) -> SizeRequirements:
        """Return the sides (px) that training crops should have: those it accepts, in whole windows."""
        accepted = self.accepts(arguments)
        multiple = math.lcm(accepted.multiple, *self.windows(arguments))
        smallest = max(accepted.minimum, multiple)
        return SizeRequirements(minimum=-(-smallest // multiple) * multiple, multiple=multiple)


def sides(minimum: int = 1, multiple: int = 1) -> Callable[[Mapping[str, Any]], SizeRequirements]:
    """Return what says of any arguments that a network accepts these sides (px)."""
    return lambda _arguments: SizeRequirements(minimum=-(-minimum // multiple) * multiple, multiple=multiple)


def sides_of(key: str) -> Callable[[Mapping[str, Any]], SizeRequirements]:
    """Return what says that a network accepts multiples of one of its arguments alone."""

    def accepted(arguments: Mapping[str, Any]) -> SizeRequirements:
        require_positive_integers(**{key: arguments[key]})
        return SizeRequirements(minimum=arguments[key], multiple=arguments[key])

    return accepted


def windows_of(*keys: str) -> Callable[[Mapping[str, Any]], Iterable[int]]:
    """Return what gives the sides (px) of windows that arguments of these keys hold, alone or in lists.

    It raises ``ValueError`` for what is no side; ``None`` in a list stands for one that follows from the image.
    """

    def windows(arguments: Mapping[str, Any]) -> Iterable[int]:
        for key in keys:
            value = arguments[key]
            for side in value if isinstance(value, list | tuple) else (value,):
                if side is not None:
                    require_positive_integers(**{key: side})
                    yield side

    return windows
