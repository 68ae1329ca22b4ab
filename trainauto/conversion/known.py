"""Which components are registered here, and which arguments they take."""

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from trainauto.archs import ARCHS, is_discriminator
from trainauto.core.errors import InputError
from trainauto.core.registry import Registry
from trainauto.losses import LOSSES
from trainauto.metrics import METRICS
from trainauto.optim import OPTIMIZERS, SCHEDULES

REGISTRIES: dict[str, Registry[Any]] = {
    "network": ARCHS,
    "loss": LOSSES,
    "metric": METRICS,
    "schedule": SCHEDULES,
    "optimizer": OPTIMIZERS,
}

_FEW = 6
_NEAR = 0.75
"""Share of letters that a mistyped word has in common with the one that was meant."""


def near_word(word: str, words: Iterable[str]) -> str:
    """Return the word that ``word`` may have been meant as, in quotes; empty where none is near."""
    plain = {_plain(one): one for one in sorted(set(words) - {word})}
    found = get_close_matches(_plain(word), list(plain), n=1, cutoff=_NEAR)
    return f"'{plain[found[0]]}'" if found else ""


def near_argument(argument: str, taken: Iterable[str]) -> str:
    """Return the argument that was meant, or all that are taken where they are few."""
    names = list(taken)
    return near_word(argument, names) or (f"it takes {', '.join(names)}" if 0 < len(names) < _FEW else "")


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


class Known:
    """Names and arguments of what is registered."""

    def has(self, kind: str, name: str) -> bool:
        """Return whether a component is registered, in any case."""
        return name in REGISTRIES[kind]

    def takes(self, kind: str, name: str) -> dict[str, Any]:
        """Return the arguments of a component and their defaults; nothing where there is no such component."""
        try:
            component = REGISTRIES[kind].get(name)
        except InputError:
            return {}
        parameters = inspect.signature(component).parameters.values()
        return {one.name: None if one.default is one.empty else one.default for one in parameters}

    def near(self, kind: str, name: str) -> str:
        """Return the name of the nearest component, in quotes; empty where none is near."""
        try:
            return near_word(name, (one for one in REGISTRIES[kind] if kind != "network" or not self._judges(one)))
        except InputError:
            return ""

    def _judges(self, name: str) -> bool:
        return is_discriminator(ARCHS.get(name))
