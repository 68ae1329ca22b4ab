"""What becomes of a key of another project's option file."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainauto.options.source_locations import KeyPath

if TYPE_CHECKING:
    from trainauto.conversion.draft import Draft


class Kind(StrEnum):
    """What becomes of a key, in words of tables."""

    CARRIED = "carried"
    MAPPED = "written otherwise"
    LEFT_OUT = "left out"
    MISSING = "not here yet"
    UNKNOWN = "unknown"
    ADDED = "default written out"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Answer:
    """What becomes of one key, or of some keys together.

    Attributes:
        kind: which way it goes.
        source: their keys; none where a default is written out.
        target: the key here; ``None`` where there is none.
        old: their value, of the first key.
        new: the value here.
        why: reason, as a clause.
        near: the nearest thing here, as a clause; empty where there is none or it needs none.
    """

    kind: Kind
    source: tuple[KeyPath, ...] = ()
    target: KeyPath | None = None
    old: Any = None
    new: Any = None
    why: str = ""
    near: str = ""


ITS_NAME, ITS_PLACE = "its name here", "where it stands here"
"""Reasons that say no more than key and value do."""


class Nothing:
    """Value of a key that need not be written, since the default here is the same."""


NOTHING = Nothing()


@dataclass(frozen=True)
class Kept:
    """The key and its value are the same here."""


@dataclass(frozen=True)
class Moved:
    """The key is another one here, or its value is.

    Attributes:
        to: key here, dotted; the name of a data set stands as ``*``.
        why: reason, as a clause.
        change: returns the value here, or :data:`NOTHING`, or :class:`Left` where this value has no equal; ``None``
            takes it as it is.
        unneeded: reason where it need not be written.
    """

    to: str
    why: str = ""
    change: "Callable[[Any, Draft], Any] | None" = None
    unneeded: str = "the default here"


@dataclass(frozen=True)
class Left:
    """There is no such key here.

    Attributes:
        why: reason, as a clause.
        near: the nearest thing here, as a clause.
    """

    why: str
    near: str = ""


Rule = Kept | Moved | Left
KEPT = Kept()


@dataclass(frozen=True)
class Default:
    """A default of theirs that differs from the one here.

    Attributes:
        to: key here, dotted.
        value: their default.
        why: whose default it is, or what depends on it.
        beside: keys here, dotted; it is written only where one of them is.
        unless: their keys, dotted; it is not written where one of them is.
        fits: whether it means anything, beside what has been written.
    """

    to: str
    value: Any
    why: str
    beside: tuple[str, ...] = field(default=())
    unless: tuple[str, ...] = field(default=())
    fits: "Callable[[Draft], bool]" = lambda _draft: True
