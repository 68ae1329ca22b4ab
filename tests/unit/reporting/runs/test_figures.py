"""What a run has come to, from files as a run writes them."""

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import GIB, a_progress, a_step, a_summary, a_validation
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import PeakReading
from trainauto.core.run_events import RunEnd
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.runs.figures import accuracies_of, figures_of, flat
from trainauto.reporting.runs.validation_totals import Metric, Value, best_of, metrics_of
from trainauto.reporting.summary_json import SummaryJson
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_lock import Owner

LARGE = Plan.of(batch_size=8, lq_size=48)


def made_run(
    root: Path, steps: Iterable[int], end: RunEnd | None = None, print_freq: int = 2, **changes: Any
) -> RunDirectory:
    """Write what a run of these steps leaves, one that ended or, without ``end``, one that did not."""
    run = RunDirectory.create(root, "")
    run.write_config({"name": "demo"})
    sinks = [JsonLines(run), SummaryJson(run.log_object, print_freq)]
    for sink in sinks:
        sink.start(a_summary(total=10))
        for step in steps:
            sink.step(a_step(step, **changes), (), a_progress(step))
        if end is not None:
            sink.end(end)
        sink.close()
    return run


def test_a_whole_run(tmp_path: Path) -> None:
    run = made_run(tmp_path, range(1, 5), RunEnd("stopped", "enough", a_progress(4)))
    run.write_config({"name": "demo", "train": {"lr": 0.1}})
    sink = JsonLines(run)
    for step, score in ((2, 29.0), (4, 28.0)):
        sink.validation(a_validation(step, metrics={"psnr": score}, ooms=1), (), ())
    sink.close()
    figures = figures_of(run)
    assert figures.path == str(run.path)
    assert figures.options == {"name": "demo", "train.lr": 0.1}
    assert (figures.status, figures.reason) == ("stopped", "enough")
    assert (figures.steps, figures.total, figures.unit, figures.samples) == (4, 10, "steps", 16)
    assert figures.seconds == pytest.approx(4 * 0.2)
    assert figures.learning_rates == {"g": 2e-4}
    assert figures.training_loss == pytest.approx((0.5 / 3 + 0.5 / 4) / 2)  # the window of steps 3 and 4
    assert (figures.ooms, figures.validation_ooms) == (0, 2)
    assert (figures.memory_bytes, figures.limit_bytes) == (GIB, 4 * GIB)
    last, best = Value(28.0, 4, baseline=28.0), Value(29.0, 2, baseline=28.0)
    assert figures.metrics == [Metric("val", "psnr", True, last, best, "bicubic")]


def test_memory_is_that_of_the_last_plan(tmp_path: Path) -> None:
    run = made_run(tmp_path, range(1, 3), ooms=1)
    sink = JsonLines(run)
    for step, size in enumerate((5, 7, 6), 3):
        shape = BatchShape(8, 48, images=8)
        sink.step(a_step(step, plan=LARGE, drawn=LARGE, shape=shape, peak=PeakReading(size)), (), a_progress(step))
    sink.close()
    figures = figures_of(run)
    assert (figures.memory_bytes, figures.ooms, figures.samples) == (6, 2, 2 * 4 + 3 * 8)


def test_a_killed_run_with_half_a_line_in_each_log(tmp_path: Path) -> None:
    run = made_run(tmp_path, range(1, 4))
    sink = JsonLines(run)
    sink.validation(a_validation(2), (), ())
    sink.close()
    for log in (run.records, run.validations):
        log.write_bytes(log.read_bytes() + log.read_bytes().splitlines()[-1][:40])
    run.log_object.write_text('{"status": "run')
    figures = figures_of(run)
    assert (figures.status, figures.steps, figures.total) == ("no end", 3, None)
    assert figures.reason.startswith("it is still running, or was killed; last step 20")
    assert figures.training_loss == pytest.approx((0.5 + 0.5 / 2 + 0.5 / 3) / 3)  # no window is known
    assert [metric.last.step for metric in figures.metrics] == [2, 2]


def test_a_run_without_a_step(tmp_path: Path) -> None:
    run = made_run(tmp_path, ())
    figures = figures_of(run)
    assert (figures.steps, figures.samples, figures.training_loss, figures.memory_bytes) == (0, 0, None, None)
    assert figures.reason == "it is still running, or was killed; no step"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are known by /proc")
def test_whether_its_process_is_there(tmp_path: Path) -> None:
    run = made_run(tmp_path, range(1, 3))
    (run.path / "owner_9.json").write_text(json.dumps(asdict(replace(Owner.me(), started="1"))))  # has its number only
    killed = figures_of(run)
    assert (killed.status, killed.reason[:39]) == ("killed", "its process ended without writing why; ")
    (run.path / "owner_10.json").write_text(json.dumps(asdict(Owner.me())))
    assert figures_of(run).status == "running"
    (run.path / "owner_11.json").write_text("{}")
    assert figures_of(run).status == "no end"


def test_starts_of_a_trainer_are_one_run_without_steps_that_were_trained_again(tmp_path: Path) -> None:
    output = RunDirectory(tmp_path / "output")
    first = made_run(output.path / "memory", range(1, 8))
    sink = JsonLines(first)
    for step in (4, 7):
        sink.validation(a_validation(step, dataset="eval", metrics={"psnr": float(step)}), (), ())
    sink.close()
    made_run(output.path / "memory", range(5, 10), RunEnd("completed", "the loop has ended", a_progress(9)))
    output.write_config({"task": "multitask"})
    (output.path / "accuracy.json").write_text('{"val": {"T1": 0.5, "T2": 0.25}}')
    figures = figures_of(output)
    assert (figures.status, figures.steps, figures.samples) == ("completed", 9, 36)
    assert figures.metrics == [
        Metric("eval", "psnr", True, Value(4.0, 4, 28.0), Value(4.0, 4, 28.0), "bicubic"),
        Metric("val", "accuracy T1", True, Value(0.5)),
        Metric("val", "accuracy T2", True, Value(0.25)),
    ]


def test_options_by_dotted_keys() -> None:
    config = {"a": {"b": 1, "none": {}, "c": None}, "list": [1, 2], "losses": [{"type": "x"}, {"type": "y", "w": 2}]}
    found = {"a.b": 1, "a.c": None, "list": [1, 2], "losses.0.type": "x", "losses.1.type": "y", "losses.1.w": 2}
    assert flat(config) == found


def test_metrics_without_a_direction_have_no_best() -> None:
    lines = [
        {"dataset": "a", "step": 1, "metrics": {"loss": "NaN"}, "better_is_higher": {"loss": False}},
        {"dataset": "a", "step": 2, "metrics": {"loss": 2, "own": 3}, "better_is_higher": {"loss": False}},
        {"dataset": "a", "step": 3, "metrics": {"loss": 2.0, "own": 1}, "better_is_higher": {"loss": False}},
    ]
    assert metrics_of(lines) == [
        Metric("a", "loss", False, Value(2.0, 3), Value(2.0, 2)),
        Metric("a", "own", None, Value(1.0, 3), None),
    ]
    assert best_of([Value(1.0, 1), Value(3.0, 2), Value(math.nan, 3)], better_is_higher=True) == Value(3.0, 2)
    assert best_of([Value(math.nan, 3)], better_is_higher=True) is None
    assert accuracies_of({"val": 0.5}) == []  # another file of that name
