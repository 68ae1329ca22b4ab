"""What validations have found, without their log: the same as all of its lines, whatever has happened to the run."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reporting.builders import a_progress, a_step, a_summary, a_validation
from trainauto.core.json_text import to_json
from trainauto.core.run_events import RunEnd
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.runs.figures import quick_figures_of
from trainauto.reporting.runs.validation_totals import Metric, ValidationTotals, Value, metrics_of
from trainauto.reporting.sinks import Sink
from trainauto.reporting.summary_json import SummaryJson
from trainauto.storage.run_directory import RunDirectory

SCORES = {2: 29.0, 4: 31.0, 6: float("nan"), 8: 30.0, 10: 31.0, 12: 28.0}


def trained(run: RunDirectory, first: int, last: int, every: int = 3, end: RunEnd | None = None) -> None:
    """Train some steps and validate two sets after every second; what is after the last logging step is killed."""
    run.rewind(first - 1)
    sinks: list[Sink] = [JsonLines(run), SummaryJson(run.log_object, every, clock=iter(range(10**9)).__next__)]
    for sink in sinks:
        sink.start(a_summary(total=100, progress=a_progress(first - 1)))
    for step in range(first, last + 1):
        for sink in sinks:
            sink.step(a_step(step), (), a_progress(step))
            for dataset in ("val", "other") if step in SCORES else ():
                scored = {"metrics": {"psnr": SCORES[step]}, "better_is_higher": {"psnr": dataset == "val"}}
                sink.validation(a_validation(step, dataset=dataset, ooms=1, baseline={}, **scored), (), ())
    for sink in sinks:
        if end is not None:
            sink.end(end)
        sink.close()


def found(run: RunDirectory) -> tuple[list[Metric], int]:
    figures = quick_figures_of(run)
    return list(figures.metrics), figures.validation_ooms


def two(last: Value, best: Value, least: Value) -> list[Metric]:
    return [Metric("val", "psnr", True, last, best), Metric("other", "psnr", False, last, least)]


WHOLE = two(Value(28.0, 12), Value(31.0, 4), Value(28.0, 12)), 12


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory.create(tmp_path, "demo")
    made.write_config({"name": "demo"})
    return made


def without_its_beginning(run: RunDirectory, lines: int) -> None:
    """Replace the first lines of the log of validations with others that would be wrong."""
    all_lines = run.validations.read_text().splitlines(keepends=True)
    wrong = [to_json(json.loads(line) | {"metrics": {"psnr": 99.0}, "ooms": 7}) + "\n" for line in all_lines[:lines]]
    run.validations.write_text("".join([*wrong, *all_lines[lines:]]))


@pytest.mark.parametrize("every", [1, 3, 5, 100])
def test_a_killed_run_has_the_validations_after_its_last_logging_step(run: RunDirectory, every: int) -> None:
    trained(run, 1, 13, every)
    assert found(run) == WHOLE


def test_their_log_is_not_read_where_the_totals_are_there(run: RunDirectory) -> None:
    trained(run, 1, 13, end=RunEnd("completed", "done", a_progress(13)))
    without_its_beginning(run, 10)
    assert found(run) == WHOLE


def test_a_listing_reads_only_what_came_after_the_last_logging_step(run: RunDirectory) -> None:
    trained(run, 1, 13, every=11)
    without_its_beginning(run, 8)
    assert found(run) == WHOLE


@pytest.mark.parametrize("checkpoint", range(13))
def test_a_resumed_run_forgets_what_is_trained_again(run: RunDirectory, checkpoint: int) -> None:
    trained(run, 1, 13)
    trained(run, checkpoint + 1, checkpoint)  # resumed, and killed before its first step
    steps = [step for step in SCORES if step <= checkpoint]
    assert {metric.last.step for metric in found(run)[0]} == ({steps[-1]} if steps else set())
    best = [step for step in (2, 4) if step <= checkpoint][-1:]
    assert [metric.best.step for metric in found(run)[0][:1] if metric.best] == best
    assert found(run)[1] == 2 * len(steps)
    trained(run, checkpoint + 1, 13)
    assert found(run) == WHOLE


@pytest.mark.parametrize("damage", ["{", "[]", '{"step": 12, "totals": {}}', '{"totals": {"validations": 3}}'])
def test_without_totals_their_log_tells(run: RunDirectory, damage: str) -> None:
    trained(run, 1, 13)
    run.log_object.write_text(damage)
    assert found(run) == WHOLE


def test_a_run_of_an_earlier_version_that_is_resumed_has_them_all(run: RunDirectory) -> None:
    trained(run, 1, 9)
    log = json.loads(run.log_object.read_text())
    del log["totals"]["validations"]
    run.log_object.write_text(json.dumps(log))
    trained(run, 10, 13, end=RunEnd("completed", "done", a_progress(13)))
    without_its_beginning(run, 10)
    assert found(run) == WHOLE


def test_starts_of_a_trainer_are_one_run(tmp_path: Path) -> None:
    output = RunDirectory(tmp_path / "output")
    for first, last in ((1, 9), (6, 11), (12, 13)):
        trained(RunDirectory.create(output.path, "memory"), first, last)
    assert found(output) == WHOLE


Lines = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.dictionaries(st.sampled_from(["psnr", "loss", "own"]), st.floats(width=16), min_size=1),
        st.integers(0, 2),
    )
)
HIGHER: Mapping[str, bool] = {"psnr": True, "loss": False}


@given(Lines, st.data())
def test_totals_are_those_of_all_lines_wherever_they_are_cut(drawn: Sequence[Any], data: st.DataObject) -> None:
    lines = [
        {"dataset": dataset, "step": step, "metrics": metrics, "better_is_higher": HIGHER, "ooms": ooms}
        for step, (dataset, metrics, ooms) in enumerate(drawn)
    ]
    cut = data.draw(st.integers(0, len(lines)))
    totals = ValidationTotals()
    for line in lines[:cut]:
        totals.add(line)
    read = ValidationTotals.from_dict(json.loads(to_json(totals.to_dict())))
    for line in lines[max(0, cut - 1) :]:  # one that is in already adds nothing
        read.add(line)
    assert repr(list(read.found.values())) == repr(metrics_of(lines))  # NaN is not equal to itself
    assert read.ooms == sum(line["ooms"] for line in lines)
    for metric in read.found.values():
        of_set = [one["metrics"].get(metric.name) for one in lines if one["dataset"] == metric.dataset]
        numbers = [value for value in of_set if value is not None and math.isfinite(value)]
        if metric.name != "own" and numbers:
            assert metric.best is not None
            assert metric.best.value == (max if HIGHER[metric.name] else min)(numbers)
        else:
            assert metric.best is None


def test_metrics_of_one_step_may_come_one_by_one() -> None:
    line = {"dataset": "val", "step": 3, "better_is_higher": {"psnr": True, "ssim": True}}
    found_metrics = metrics_of([line | {"metrics": {"psnr": 1.0}}, line | {"metrics": {"ssim": 0.5}}])
    assert [metric.name for metric in found_metrics] == ["psnr", "ssim"]
