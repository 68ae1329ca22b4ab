"""What a run tells an experiment tracker, and what such a tracker looks like."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from trainauto.core.run_events import EndStatus


@dataclass(frozen=True)
class TrackedRun:
    """A run as it begins, or goes on.

    Attributes:
        name: what it is called in lists: the experiment and the folder of the run.
        config: options and facts by dotted names: texts, numbers, true or false, ``None``, and lists of these.
        resumed_after: steps that lie behind; 0 for a new run.
    """

    name: str
    config: Mapping[str, Any]
    resumed_after: int = 0


@dataclass(frozen=True)
class Point:
    """A point of each of some curves.

    Attributes:
        step: 1-based optimizer step.
        values: by the name of the curve.
        time_s: when, in seconds since 1970.
        is_kept: never thinned, e.g. of a validation.
    """

    step: int
    values: Mapping[str, float]
    time_s: float
    is_kept: bool = False


@dataclass(frozen=True)
class Event:
    """Something that was decided or happened.

    Attributes:
        step: after which.
        kind: ``plan``, ``rate``, ``clip``, ``stop``, ``oom``, ``resume`` or ``end``.
        text: what, with its reason; one line that can be shown as it is.
    """

    step: int
    kind: str
    text: str


@dataclass(frozen=True)
class End:
    """How a run ended.

    Attributes:
        status: in which way.
        reason: one line that can be shown as it is.
    """

    status: EndStatus
    reason: str


Report = Point | Event | End


class Tracker(ABC):
    """A tracker of one run. All methods are called from one thread, in the order below; each may raise anything.

    Attributes:
        name: what people call it.
        package: that it is imported from; imported before :meth:`start`.
        environment: variables that the package reads when it is imported, set where they are not set yet.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    environment: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def start(self, run: TrackedRun) -> None:
        """Begin a run, or go on with it. It is called again where it raised."""

    @abstractmethod
    def log(self, point: Point) -> None:
        """Add points to curves."""

    @abstractmethod
    def event(self, event: Event) -> None:
        """Add something that was decided or happened."""

    @abstractmethod
    def finish(self, end: End) -> None:
        """End the run there, and let go of it."""
