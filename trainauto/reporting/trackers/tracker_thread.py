"""The thread that talks to one tracker, and the queue before it: the run never waits for either."""

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from trainauto.core.words import visible
from trainauto.reporting.trackers.tracker import End, Event, Point, Report, TrackedRun, Tracker

MOST_POINTS = 1000
"""Reports that wait before points are thinned: of every 100 steps, a day of a server that is away."""
MOST_KEPT = 10 * MOST_POINTS
"""Reports that wait at most, decisions included: memory has an end, too."""
ATTEMPTS = 5
"""How often a report is tried: with the pauses between, a server may be away for 15 s before one is given up."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pauses double with every failure, and stay long while nothing works."""
LONGEST_ERROR = 200


class TrackerThread:
    """Hands reports on to a tracker, one after another, in a thread of its own.

    It never logs: the code that ends a run waits for it while it holds the lock that logging takes. What is to be said
    is fetched by :meth:`notes`.

    Args:
        tracker: where reports go. From :meth:`begin` on no other thread calls it.
        run: what it begins with.
        most_points: reports that wait before points are thinned.
        shortest_pause_s: after the first failure.
    """

    def __init__(
        self,
        tracker: Tracker,
        run: TrackedRun,
        *,
        most_points: int = MOST_POINTS,
        shortest_pause_s: float = SHORTEST_PAUSE_S,
    ) -> None:
        self.name = tracker.name
        self._tracker, self._run = tracker, run
        self._most_points, self._room = most_points, most_points
        self._shortest_pause_s = shortest_pause_s
        self._changed = threading.Condition()
        self._waiting: deque[Report] = deque()
        self._notes: list[str] = []
        self._said: set[str] = set()
        self._ending = threading.Event()
        self._is_over = self._is_busy = self._is_left = False
        self._failures = self._lost = 0
        self._thread = threading.Thread(target=self._work, name=f"trainauto-{tracker.name}", daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, report: Report) -> None:
        """Have a report handed on; what comes after the end, or for a tracker that was left out, is dropped."""
        with self._changed:
            if self._is_over or self._ending.is_set():
                return
            self._waiting.append(report)
            if len(self._waiting) > self._room:
                self._make_room()
            if isinstance(report, End):
                self._ending.set()
            self._changed.notify()

    def notes(self) -> list[str]:
        """Return what is to be said, each once."""
        with self._changed:
            notes, self._notes = self._notes, []
        return notes

    def wait(self, timeout_s: float) -> bool:
        """Wait for the thread to end; return whether it has."""
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def leave(self) -> None:
        """Call the tracker no more once the call under way is over, without waiting for that."""
        self._is_left = True

    @property
    def left(self) -> int:
        """How many reports did not reach the tracker: lost, and those that still wait."""
        with self._changed:
            return self._lost + len(self._waiting) + self._is_busy

    def _make_room(self) -> None:
        """Leave every second point out, counted from the newest; decisions stay."""
        kept: deque[Report] = deque()
        stays = True
        for report in reversed(self._waiting):
            if isinstance(report, Point) and not report.is_kept:
                if stays:
                    kept.appendleft(report)
                stays = not stays
            else:
                kept.appendleft(report)
        while len(kept) > MOST_KEPT:
            kept.popleft()
            self._lost += 1
        self._waiting = kept
        self._room = max(self._most_points, len(kept) + self._most_points // 2)
        self._say("fewer points", "is slower than the run: it gets fewer points of curves, but every decision")

    def _say(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._notes.append(f"{self.name} {text}")

    def _work(self) -> None:
        try:
            self._hand_on_all()
        except BaseException as error:  # a library that exits must not leave without a word
            self._note("ended", f"has ended and is now disabled; the run continues. {_words(error)}")
        finally:
            with self._changed:
                self._is_over = True
                self._lost += len(self._waiting)
                self._waiting.clear()

    def _hand_on_all(self) -> None:
        if not self._is_done(partial(self._tracker.start, self._run)):
            self._note("left out", "could not be started and is disabled; the run continues")
            return
        while True:
            report = self._next()
            if not self._is_done(partial(self._hand_on, report)):
                self._lost += 1
            self._is_busy = False
            if isinstance(report, End):
                return

    def _next(self) -> Report:
        with self._changed:
            while not self._waiting:
                self._changed.wait()
            self._is_busy = True
            return self._waiting.popleft()

    def _hand_on(self, report: Report) -> None:
        match report:
            case Point():
                self._tracker.log(report)
            case Event():
                self._tracker.event(report)
            case End():
                self._tracker.finish(report)

    def _is_done(self, call: Callable[[], None]) -> bool:
        """Try a call a few times; once the run has ended, as often but without pauses."""
        for _ in range(ATTEMPTS):
            if self._is_left:
                break
            try:
                call()
            except Exception as error:
                self._failures += 1
                self._note("failed", f"failed and is retried; the run continues. {_words(error)}")
                pause_s = self._shortest_pause_s * 2 ** min(self._failures - 1, 10)
                self._ending.wait(min(pause_s, LONGEST_PAUSE_S))
            else:
                self._failures = 0
                return True
        return False

    def _note(self, what: str, text: str) -> None:
        with self._changed:
            self._say(what, text)


def wait_for_all(threads: list[TrackerThread], longest_s: float) -> list[TrackerThread]:
    """Wait for threads to end, for so long at most all together; return those that have not."""
    deadline_s = time.monotonic() + longest_s
    return [thread for thread in threads if not thread.wait(deadline_s - time.monotonic())]


def _words(error: BaseException) -> str:
    return visible(f"{type(error).__name__}: {error}", LONGEST_ERROR)
