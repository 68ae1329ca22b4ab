import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import GIB, a_progress, a_step, a_summary, a_validation
from tests.unit.reporting.trackers.list_tracker import ListTracker
from tests.unit.reporting.trackers.listening import listening
from trainauto.core.decisions import ClipAt, KeepPlan, PlanChange, RateFactor, Stop
from trainauto.core.plan import Plan
from trainauto.core.records import PeakReading
from trainauto.core.run_events import RunEnd
from trainauto.core.units import MIB
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.trackers.sink import Trackers
from trainauto.reporting.trackers.tracker import End, Point
from trainauto.reporting.trackers.tracker_ids import TrackerIds
from trainauto.storage.run_directory import RunDirectory

END = RunEnd("completed", "done", a_progress(3))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path, "demo")
    run.write_config({"name": "demo", "train": {"losses": [{"type": "l1loss"}], "betas": [0.9, 0.99]}})
    return run


@pytest.fixture
def said() -> Iterator[list[str]]:
    with listening() as texts:
        yield texts


def a_sink(run: RunDirectory, *trackers: ListTracker, every: int = 1, longest_wait_s: float = 5.0) -> Trackers:
    ids = TrackerIds(run.trackers)
    return Trackers(trackers, run, ids, "demo 1", every, longest_wait_s=longest_wait_s, clock=lambda: 1e9)


def points(tracker: ListTracker, name: str) -> list[tuple[int, Any]]:
    found = [report for report in tracker.told if isinstance(report, Point) and name in report.values]
    return [(point.step, pytest.approx(point.values[name])) for point in found]


def test_a_run_from_start_to_end(run: RunDirectory, said: list[str]) -> None:
    tracker, other = ListTracker(), ListTracker()
    with Reporter([a_sink(run, tracker, other, every=2)]) as reporter:
        reporter.start(a_summary(memory_target_bytes=3 * GIB))
        for step in range(1, 6):
            reporter.step(a_step(step, ooms=2 * (step == 3), predicted=GIB), (), a_progress(step))
        reporter.validation(a_validation(5, peak=PeakReading(2 * GIB)), ())
        reporter.end(RunEnd("stopped", "loss is low", a_progress(5)))
    assert said == []
    assert other.told == tracker.told
    (begun,) = tracker.runs
    assert begun.name == "demo 1"
    assert begun.config["train.losses.0.type"] == "l1loss"
    assert begun.config["train.betas"] == [0.9, 0.99]
    assert begun.config["run.network"] == "SRResNet x4"
    assert points(tracker, "loss/l1") == [(2, 0.375), (4, (0.5 / 3 + 0.125) / 2), (5, 0.1)]
    assert points(tracker, "events/ooms") == [(2, 0), (4, 2), (5, 0)]
    assert points(tracker, "events/oom") == [(2, 0), (4, 1), (5, 0)]
    assert points(tracker, "progress/samples") == [(2, 8), (4, 16), (5, 20)]
    assert points(tracker, "memory/target_gib") == [(2, 3), (4, 3), (5, 3)]
    assert points(tracker, "memory/predicted_gib")[0] == (2, 1)
    assert points(tracker, "validation/val/psnr") == [(5, 28.5)]
    assert points(tracker, "validation/val/lpips_gain_over_bicubic") == [(5, 0.05)]
    assert points(tracker, "memory/validation_peak_gib") == [(5, 2)]
    assert tracker.events == [(3, "oom"), (5, "end")]
    assert tracker.told[-1] == End("stopped", "loss is low")


def test_every_kind_of_decision_comes_with_its_reason(run: RunDirectory) -> None:
    tracker, plan = ListTracker(), Plan.of(batch_size=2, lq_size=48)
    decisions = [PlanChange(plan, "a"), KeepPlan(plan, "b"), RateFactor(0.5, "c"), ClipAt(1.0, "d"), Stop("e")]
    with Reporter([a_sink(run, tracker)]) as reporter:
        reporter.start(a_summary())
        reporter.step(a_step(1), decisions, a_progress(1))
        reporter.end(END)
    assert [kind for _, kind in tracker.events] == ["plan", "plan", "rate", "clip", "stop", "end"]
    texts = [report.text for report in tracker.told if not isinstance(report, Point | End)]
    assert all(text.endswith(f": {reason}") for text, reason in zip(texts, "abcde", strict=False))
    assert points(tracker, "events/adjustment") == [(1, 1)]


def test_a_resumed_run_says_so_and_keeps_the_unit_of_its_memory(run: RunDirectory) -> None:
    for begun, peak in ((0, 50 * MIB), (2, 3 * GIB)):
        tracker = ListTracker()
        with Reporter([a_sink(run, tracker)]) as reporter:
            reporter.start(a_summary(progress=a_progress(begun)))
            reporter.step(a_step(begun + 1, peak=PeakReading(peak)), (), a_progress(begun + 1))
            reporter.end(END)
    assert tracker.runs[0].resumed_after == 2
    assert tracker.events[0] == (2, "resume")
    assert points(tracker, "memory/peak_mib") == [(3, 3072)]
    assert json.loads(run.trackers.read_text()) == {"memory_unit": "MiB"}


def test_a_tracker_that_hangs_slows_no_step_and_the_end_for_a_while(run: RunDirectory, said: list[str]) -> None:
    is_open = threading.Event()
    hangs, works = ListTracker(is_open=is_open), ListTracker()
    longest_s = 0.0
    with Reporter([a_sink(run, hangs, works, longest_wait_s=1.5)]) as reporter:
        reporter.start(a_summary())
        for step in range(1, 1501):
            start = time.perf_counter()
            reporter.step(a_step(step), (), a_progress(step))
            longest_s = max(longest_s, time.perf_counter() - start)
        start = time.perf_counter()
        reporter.end(RunEnd("completed", "done", a_progress(1500)))
        end_s = time.perf_counter() - start
    is_open.set()
    assert longest_s < 0.2
    assert 1.0 < end_s < 3.0
    assert works.told[-1] == End("completed", "done")
    assert said[0] == "WARNING a list is slower than the run: it gets fewer points of curves, but every decision"
    assert "INFO waiting up to 2 s for a list; Ctrl-C ends the wait" in said
    assert said[-1].startswith("WARNING a list had not received ")
    assert said[-1].endswith(" reports after 2 s; the run ends without it, and its own files have them")


def test_ctrl_c_ends_the_wait_and_not_the_run(run: RunDirectory, said: list[str]) -> None:
    is_open = threading.Event()
    with Reporter([a_sink(run, ListTracker(is_open=is_open), longest_wait_s=5.0)]) as reporter:
        reporter.start(a_summary())
        interrupt = threading.Timer(1.2, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        start = time.perf_counter()
        reporter.end(END)
        end_s = time.perf_counter() - start
        interrupt.join()
    is_open.set()
    assert 1.0 < end_s < 3.0
    assert (
        said[-1]
        == "WARNING a list had not received 2 reports after 1 s; the run ends without it, and its own files have them"
    )


@pytest.mark.parametrize("error", [OSError("away"), MemoryError(), SystemExit(1), KeyError("x")])
def test_a_tracker_that_always_fails_leaves_the_run_alone(
    run: RunDirectory, said: list[str], error: BaseException
) -> None:
    fails, works = ListTracker(repeat(error)), ListTracker()
    with Reporter([a_sink(run, fails, works)]) as reporter:
        reporter.start(a_summary())
        for step in range(1, 4):
            reporter.step(a_step(step), (), a_progress(step))
        reporter.end(END)
    assert works.steps == [1, 2, 3]
    assert fails.told == []
    assert 1 <= len([text for text in said if "a list" in text]) <= 4
    assert any(type(error).__name__ in text for text in said)


def test_one_that_cannot_be_imported_is_left_out(run: RunDirectory, said: list[str]) -> None:
    class Missing(ListTracker):
        name = "missing"
        package = "trainauto.no_such_package"

    works = ListTracker()
    with Reporter([a_sink(run, Missing(), works)]) as reporter:
        reporter.start(a_summary())
        reporter.step(a_step(1), (), a_progress(1))
        reporter.end(END)
    assert works.steps == [1]
    (text,) = said
    assert text.startswith("WARNING missing cannot be imported and is disabled; the run continues. ModuleNotFoundError")


def test_a_run_without_an_end_lets_go_of_its_trackers(run: RunDirectory) -> None:
    tracker = ListTracker()
    with Reporter([a_sink(run, tracker)]) as reporter:
        reporter.start(a_summary())
        reporter.step(a_step(1), (), a_progress(1))
    assert tracker.told[-1] == End("failed", "the run came to no end")
    assert not [thread for thread in threading.enumerate() if thread.name == "trainauto-a list"]


def test_hostile_words_are_written_out_before_they_leave(run: RunDirectory) -> None:
    hostile = "</script>\x1b[31m\u202e\n" + "x" * 2000
    run.write_config({"plugin": {hostile: [hostile]}, "address": "https://me:secret@host/x"})
    tracker = ListTracker()
    with Reporter([a_sink(run, tracker)]) as reporter:
        reporter.start(a_summary())
        reporter.step(a_step(1, losses={hostile: 1.0}), [Stop(hostile)], a_progress(1))
        reporter.end(RunEnd("failed", hostile, a_progress(1)))
    config = tracker.runs[0].config
    assert config["address"] == "https://…@host/x"
    texts = [*config, *map(str, config.values()), *(str(report) for report in tracker.told)]
    assert not [text for text in texts if {"\x1b", "\u202e", "\n"} & set(text)]
    assert max(len(name) for report in tracker.told if isinstance(report, Point) for name in report.values) <= 250
