"""Who validates a set together, and what each of them makes of an image."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from trainauto.core.records import ImageScore
from trainauto.core.run_events import ImageArray
from trainauto.tasks.sr.models.tiles import Enlarge


@dataclass(frozen=True)
class ImageResult:
    """An image that was enlarged and measured.

    Attributes:
        score: its metrics.
        output: what the network made; ``None`` if it is not shown.
        bicubic: plain enlargement of the input, where the image is to be shown.
        reference: what it should have been, where the image is to be shown.
        ooms: times memory ran out on the way, so that tiles shrank.
    """

    score: ImageScore
    output: ImageArray | None = None
    bicubic: ImageArray | None = None
    reference: ImageArray | None = None
    ooms: int = 0


class StopHeard(BaseException):
    """A stop was asked for while an image was under way. Like Ctrl-C it is no error that other code may swallow."""


class ValidationGroup(Protocol):
    """Who validates a set together: each takes every ``count``-th image.

    Attributes:
        rank: number of this process.
        count: how many there are.
    """

    rank: int
    count: int

    def stop(self) -> bool:
        """Whether to give up; asked before each round of images, and the same for all."""

    def heeding(self, enlarge: Enlarge) -> AbstractContextManager[Enlarge]:
        """Yield the network for one image; a stop that comes meanwhile raises :class:`StopHeard`."""

    def leave(self) -> None:
        """Tell the others that this one has left its image for a stop; comes in place of :meth:`meet`."""

    def meet(self, mine: ImageResult | None) -> list[ImageResult] | None:
        """Return what all have judged in this round, in their order; ``None`` if any has left.

        Args:
            mine: what this one has judged; ``None`` is nothing.
        """


class LocalValidation:
    """A process that validates all images itself; ``stop`` is asked before each."""

    rank = 0
    count = 1

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        self._stop = stop

    def stop(self) -> bool:
        """Whether to give up."""
        return self._stop()

    def heeding(self, enlarge: Enlarge) -> AbstractContextManager[Enlarge]:
        """Yield the network; nothing is heard within an image."""
        return nullcontext(enlarge)

    def leave(self) -> None:
        """There are no others."""

    def meet(self, mine: ImageResult | None) -> list[ImageResult]:
        """Return what was judged."""
        return [mine] if mine is not None else []
