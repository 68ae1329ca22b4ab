import threading
import time
from itertools import chain, repeat

import pytest

from tests.unit.reporting.trackers.list_tracker import ListTracker
from trainauto.reporting.trackers import tracker_thread
from trainauto.reporting.trackers.tracker import End, Event, Point, TrackedRun
from trainauto.reporting.trackers.tracker_thread import ATTEMPTS, TrackerThread, wait_for_all

RUN = TrackedRun("demo 20250102_030405", {"name": "demo"})
END = End("completed", "done")


def a_point(step: int, *, is_kept: bool = False) -> Point:
    return Point(step, {"loss/total": 1 / step}, 1e9 + step, is_kept)


def begun(tracker: ListTracker, most_points: int = 1000, shortest_pause_s: float = 0.001) -> TrackerThread:
    thread = TrackerThread(tracker, RUN, most_points=most_points, shortest_pause_s=shortest_pause_s)
    thread.begin()
    return thread


def test_reports_are_handed_on_in_their_order() -> None:
    tracker = ListTracker()
    thread = begun(tracker)
    reports = [a_point(1), Event(1, "plan", "why"), a_point(2), END]
    for report in reports:
        thread.put(report)
    assert thread.wait(5)
    assert tracker.runs == [RUN]
    assert tracker.told == reports
    assert thread.notes() == []
    assert thread.left == 0


def test_what_comes_after_the_end_is_dropped() -> None:
    tracker = ListTracker()
    thread = begun(tracker)
    thread.put(END)
    thread.put(a_point(1))
    assert thread.wait(5)
    thread.put(a_point(2))
    assert tracker.told == [END]
    assert thread.left == 0


def test_a_slow_tracker_gets_fewer_points_and_every_decision_and_it_is_said_once() -> None:
    is_open = threading.Event()
    tracker = ListTracker(is_open=is_open)
    thread = begun(tracker, most_points=100)
    for step in range(1, 2001):
        thread.put(a_point(step))
        if step % 50 == 0:
            thread.put(Event(step, "plan", "why"))
        if step % 400 == 0:
            thread.put(a_point(step, is_kept=True))
    assert thread.left < 350
    is_open.set()
    thread.put(END)
    assert thread.wait(5)
    assert tracker.events == [(step, "plan") for step in range(50, 2001, 50)]
    kept = [report.step for report in tracker.told if isinstance(report, Point) and report.is_kept]
    assert kept == [400, 800, 1200, 1600, 2000]
    assert tracker.steps == sorted(tracker.steps)
    points = set(tracker.steps)
    assert 2000 in points
    assert 50 < len(points) < 200
    recent, old = ([step for step in points if low < step <= low + 500] for low in (1500, 500))
    assert len(recent) > len(old) > 0, "the newest are kept, and the course is still to be seen"
    assert thread.notes() == ["a list is slower than the run: it gets fewer points of curves, but every decision"]
    assert thread.notes() == []


def test_decisions_without_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_thread, "MOST_KEPT", 200)
    is_open = threading.Event()
    tracker = ListTracker(is_open=is_open)
    thread = begun(tracker, most_points=100)
    for step in range(1, 1001):
        thread.put(Event(step, "plan", "why"))
    assert thread.left <= 1001
    is_open.set()
    thread.put(END)
    assert thread.wait(5)
    assert tracker.events[-1] == (1000, "plan")
    assert len(tracker.events) < 300
    assert thread.left == 1000 - len(tracker.events)


def test_what_fails_is_tried_again_and_said_once() -> None:
    tracker = ListTracker(iter([ConnectionError("\x1b[31maway"), ConnectionError("still"), OSError("so")]))
    thread = begun(tracker)
    for report in (a_point(1), a_point(2)):
        thread.put(report)
    while len(tracker.told) < 2:
        time.sleep(0.001)
    thread.put(END)
    assert thread.wait(5)
    assert tracker.told == [a_point(1), a_point(2), END]
    assert thread.notes() == [r"a list failed and is retried; the run continues. ConnectionError: \x1b[31maway"]
    assert thread.left == 0


def test_a_report_that_is_always_refused_does_not_block_the_others() -> None:
    class Picky(ListTracker):
        def log(self, point: Point) -> None:
            if point.step == 2:
                raise ValueError("not this one")
            super().log(point)

    tracker = Picky()
    thread = begun(tracker)
    for step in (1, 2, 3):
        thread.put(a_point(step))
    thread.put(END)
    assert thread.wait(5)
    assert tracker.steps == [1, 3]
    assert tracker.told[-1] == END
    assert thread.left == 1


def test_one_that_cannot_be_started_is_left_out() -> None:
    tracker = ListTracker(chain(repeat(RuntimeError("no"), ATTEMPTS)))
    thread = begun(tracker)
    thread.put(a_point(1))
    assert thread.wait(5)
    thread.put(a_point(2))
    assert tracker.told == []
    assert thread.notes()[-1] == "a list could not be started and is disabled; the run continues"
    assert thread.left == 1


def test_one_that_ends_its_thread_is_told_of() -> None:
    tracker = ListTracker(iter([SystemExit(3)]))
    thread = begun(tracker)
    thread.put(a_point(1))
    assert thread.wait(5)
    (note,) = thread.notes()
    assert note == "a list has ended and is now disabled; the run continues. SystemExit: 3"


def test_pauses_end_with_the_run() -> None:
    tracker = ListTracker(repeat(OSError("away")))
    thread = begun(tracker, shortest_pause_s=30.0)
    thread.put(a_point(1))
    time.sleep(0.05)
    start = time.monotonic()
    thread.put(END)
    assert thread.wait(5)
    assert time.monotonic() - start < 2.0


def test_waiting_for_several_takes_no_longer_than_for_one() -> None:
    is_open = threading.Event()
    threads = [begun(ListTracker(is_open=is_open)) for _ in range(3)]
    quick = begun(ListTracker())
    for thread in (*threads, quick):
        thread.put(END)
    start = time.monotonic()
    assert wait_for_all([*threads, quick], 0.3) == threads
    assert 0.25 < time.monotonic() - start < 1.0
    is_open.set()
    assert wait_for_all(threads, 5.0) == []
