"""The newest events of a run as a table that trackers are sent whole, and seldom."""

import time
from collections import deque
from collections.abc import Callable

from trainauto.reporting.trackers.tracker import Event

COLUMNS = ("step", "kind", "text")
MOST_ROWS = 1000
SHORTEST_PAUSE_S = 60.0
LARGEST_PAUSE_SHARE = 0.01
"""Of the time since the run began: a month of decisions is some 700 tables, instead of 43,000 at one a minute."""


class EventTable:
    """Keeps events, and says when to send them.

    Args:
        clock: returns seconds since whenever.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=MOST_ROWS)
        self._count = 0
        self._begun_s = self._sent_s = clock()
        self._has_new = False

    def add(self, event: Event) -> None:
        """Keep an event; the same one again, as where sending it is tried again, adds nothing."""
        if not self._events or event is not self._events[-1]:
            self._events.append(event)
            self._count += 1
            self._has_new = True

    @property
    def newest(self) -> Event:
        """The last event; there is one where :meth:`is_due` is true."""
        return self._events[-1]

    def is_due(self, *, at_end: bool = False) -> bool:
        """Whether to send the rows now: there are new ones, and the last time is a while ago or the run is over."""
        now_s = self._clock()
        pause_s = max(SHORTEST_PAUSE_S, LARGEST_PAUSE_SHARE * (now_s - self._begun_s))
        return self._has_new and (at_end or now_s - self._sent_s >= pause_s)

    def rows(self) -> list[tuple[int, str, str]]:
        """Return a row of ``COLUMNS`` an event, at most ``MOST_ROWS``; before them how many are left out."""
        rows = [(event.step, event.kind, event.text) for event in self._events]
        if left_out := self._count - len(rows):
            return [(rows[0][0], "left out", f"{left_out} earlier ones; the run's own files have them"), *rows]
        return rows

    def note_sent(self) -> None:
        """Note that the rows have arrived."""
        self._sent_s, self._has_new = self._clock(), False
