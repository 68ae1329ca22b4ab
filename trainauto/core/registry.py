"""Named components: networks, losses, metrics, datasets, models, schedules, automations."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from trainauto.core.errors import InputError, Problem, nearest

T = TypeVar("T", bound=Callable[..., Any])


def in_one_word(name: str) -> str:
    """Return a name without case and underscores: ``plan_schedule`` and ``PlanSchedule`` are the same word."""
    return name.replace("_", "").lower()


class Registry(Generic[T]):
    """Components of one kind by name, without regard to case.

    Registration is explicit (a decorator, in a module that is imported by name); nothing scans directories. A name
    taken twice is refused, naming both places.

    Args:
        kind: what it holds, in the singular, as it should read in messages: ``"network"``.
        spelled: returns the same for all spellings of a name.
        advice_about: returns what to do about a name that is not registered; empty where the nearest name will do.
    """

    def __init__(
        self,
        kind: str,
        spelled: Callable[[str], str] = str.lower,
        advice_about: Callable[[str], str] = lambda _name: "",
    ) -> None:
        self.kind = kind
        self._spelled = spelled
        self._advice_about = advice_about
        self._entries: dict[str, T] = {}
        self._shown: dict[str, str] = {}
        self._aliases: set[str] = set()

    def register(self, *names: str) -> Callable[[T], T]:
        """Register a class or function under ``names`` (its own name if none is given); the first is the one shown.

        Raises:
            InputError: a name is taken by another object.
        """

        def add(component: T) -> T:
            for position, name in enumerate(names or (component.__name__,)):
                key = self._spelled(name)
                earlier = self._entries.get(key)
                if earlier is not None and earlier is not component:
                    places = f"{_place_of(earlier)} and {_place_of(component)}"
                    message = f"two {self.kind}s are named '{name}': {places}"
                    raise InputError(Problem(message, advice="Rename one of them."))
                if earlier is component:
                    continue  # a module imported twice under two names
                self._entries[key] = component
                self._shown[key] = name
                if position:
                    self._aliases.add(key)
            return component

        return add

    def get(self, name: str) -> T:
        """Return the component called ``name``.

        Raises:
            InputError: there is none; the message says what to do, or names the nearest.
        """
        try:
            return self._entries[self._spelled(name)]
        except KeyError:
            advice = self._advice_about(name) or nearest(name, self._shown.values())
            problem = Problem(f"there is no {self.kind} named '{name}'", advice=advice, may_be_of_plugin=True)
            raise InputError(problem) from None

    def shown(self, name: str) -> str:
        """Return the name to show of the component called ``name``, an alias of it included.

        Raises:
            InputError: there is none, as for :meth:`get`.
        """
        return self.name_of(self.get(name))

    def name_of(self, component: T) -> str:
        """Return the name to show of a component that is registered."""
        return next(shown for shown in self if self._entries[self._spelled(shown)] is component)

    def aliases(self, name: str) -> list[str]:
        """Return the further names of the component called ``name``, as they were given.

        Raises:
            InputError: there is none, as for :meth:`get`.
        """
        component = self.get(name)
        return [shown for key, shown in self._shown.items() if key in self._aliases and self._entries[key] is component]

    def __contains__(self, name: str) -> bool:
        return self._spelled(name) in self._entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names to show, aliases left out."""
        return iter(sorted(shown for key, shown in self._shown.items() if key not in self._aliases))


def _place_of(component: Callable[..., Any]) -> str:
    try:
        file, line = inspect.getsourcefile(component), inspect.getsourcelines(component)[1]
    except (OSError, TypeError):
        return f"{component.__module__}.{component.__qualname__}"
    return f"{component.__module__}.{component.__qualname__} ({file}:{line})"
