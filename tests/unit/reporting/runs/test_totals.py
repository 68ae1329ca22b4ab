"""What steps add up to, without their long log: the same as all of its lines, whatever has happened to the run."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.unit.reporting.builders import GIB, a_progress, a_step, a_summary
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import PeakReading, Progress
from trainauto.core.run_events import RunEnd
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.runs import totals as run_totals
from trainauto.reporting.runs.figures import RunFigures, figures_of, quick_figures_of
from trainauto.reporting.runs.totals import Totals
from trainauto.reporting.summary_json import SummaryJson
from trainauto.storage.run_directory import RunDirectory

LARGE = Plan.of(batch_size=8, lq_size=48)


def trained(run: RunDirectory, first: int, last: int, print_freq: int = 4, **changes: object) -> None:
    """Train some steps, which begin or resume a run that is killed at its end; memory runs out at every third."""
    run.rewind(first - 1)
    progress, seconds = a_progress(first - 1), count()
    sinks = [JsonLines(run), SummaryJson(run.log_object, print_freq, clock=lambda: float(next(seconds)))]
    for sink in sinks:
        sink.start(a_summary(total=100, progress=progress))
    for step in range(first, last + 1):
        record = a_step(step, ooms=2 if step % 3 == 0 else 0, **changes)
        progress += record
        for sink in sinks:
            sink.step(record, (), progress)
    for sink in sinks:
        sink.close()


def of_steps(figures: RunFigures) -> tuple[object, ...]:
    sizes = figures.memory_bytes, figures.limit_bytes
    return (figures.steps, figures.samples, round(figures.seconds, 6), figures.ooms, *sizes)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    made = RunDirectory.create(tmp_path, "demo")
    made.write_config({"name": "demo"})
    return made


def test_a_killed_run_has_the_steps_after_its_last_logging_step(run: RunDirectory) -> None:
    trained(run, 1, 11)
    assert json.loads(run.log_object.read_text())["step"] == 8
    assert of_steps(quick_figures_of(run)) == (11, 44, 2.2, 6, GIB, 4 * GIB) == of_steps(figures_of(run))


def test_a_resumed_run_forgets_what_is_trained_again(run: RunDirectory) -> None:
    trained(run, 1, 16)
    trained(run, 8, 20)
    assert of_steps(quick_figures_of(run)) == (20, 80, 4.0, 12, GIB, 4 * GIB) == of_steps(figures_of(run))


def test_the_long_log_is_not_read_where_the_totals_are_there(run: RunDirectory) -> None:
    trained(run, 1, 12)
    lines = run.records.read_bytes().splitlines(keepends=True)
    run.records.write_bytes(b"".join([lines[0], b'{"step": 2, "of": "another version"}\n', *lines[2:]]))
    assert quick_figures_of(run).samples == 48


@pytest.mark.parametrize("damage", ['{"status": "run', "[]", '{"step": 12, "totals": {"since": 0}}', None])
def test_without_totals_the_long_log_tells(run: RunDirectory, damage: str | None) -> None:
    trained(run, 1, 12)
    if damage is None:
        run.log_object.unlink()
    else:
        run.log_object.write_text(damage)
    assert of_steps(quick_figures_of(run)) == (12, 48, 2.4, 8, GIB, 4 * GIB) == of_steps(figures_of(run))


def test_a_run_of_an_earlier_version_that_was_resumed_is_counted_from_its_first_step(run: RunDirectory) -> None:
    trained(run, 1, 12)
    log = json.loads(run.log_object.read_text())
    del log["totals"]
    run.log_object.write_text(json.dumps(log))
    trained(run, 13, 20)
    assert json.loads(run.log_object.read_text())["totals"]["since"] == 12
    assert of_steps(quick_figures_of(run)) == (20, 80, 4.0, 12, GIB, 4 * GIB) == of_steps(figures_of(run))


@pytest.mark.parametrize("keeps_totals", [True, False])
def test_starts_of_a_trainer_add_up(tmp_path: Path, keeps_totals: bool) -> None:
    output = RunDirectory(tmp_path / "output")
    for first, last in ((1, 10), (7, 14), (15, 16)):
        start = RunDirectory.create(output.path, "memory")
        trained(start, first, last)
        if not keeps_totals:
            start.log_object.unlink()
    assert of_steps(quick_figures_of(output)) == (16, 64, 3.2, 10, GIB, 4 * GIB) == of_steps(figures_of(output))


def test_memory_is_that_of_the_last_plan_as_soon_as_it_is_trained(run: RunDirectory) -> None:
    trained(run, 1, 9, peak=PeakReading(5, limit=100))
    other = {"plan": LARGE, "drawn": LARGE, "shape": BatchShape(8, 48, images=8)}
    trained(run, 10, 10, peak=PeakReading(7, limit=50), **other)
    assert of_steps(quick_figures_of(run))[-2:] == (7, 50) == of_steps(figures_of(run))[-2:]


def test_a_read_median_stands_until_enough_was_measured() -> None:
    totals = Totals()
    for step in range(1, 200):
        totals.add(a_step(step))
    resumed = Totals.from_dict(totals.to_dict(), 199)
    resumed.resume(Progress(steps=150, samples=600, seconds=30.0))
    for step in range(151, 200):
        resumed.add(a_step(step, peak=PeakReading(3, limit=4 * GIB)))
    assert resumed.typical_bytes == GIB
    resumed.add(a_step(200, peak=PeakReading(3, limit=4 * GIB)))
    assert resumed.typical_bytes == 3
    assert (resumed.samples, resumed.limit_bytes) == (800, 4 * GIB)


def test_shortages_are_bounded_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_totals, "_MOST_SHORTAGES", 8)
    totals = Totals()
    for step in range(1, 101):
        totals.add(a_step(step, ooms=1))
    assert len(totals.shortages) <= 8
    assert totals.ooms_before(101) == 100
    assert totals.shortages[-1][0] == 100


def test_batches_that_were_cut_say_nothing_of_the_plan() -> None:
    totals = Totals()
    totals.add(a_step(1))
    totals.add(replace(a_step(2, peak=PeakReading(1)), shape=BatchShape(2, 48, images=2)))
    totals.add(a_step(3, peak=None))
    assert totals.typical_bytes == GIB


def test_a_run_that_ended_holds_its_totals(run: RunDirectory) -> None:
    sink = SummaryJson(run.log_object, 100)
    sink.start(a_summary())
    sink.step(a_step(1), (), a_progress(1))
    sink.end(RunEnd("stopped", "enough", a_progress(1)))
    totals = json.loads(run.log_object.read_text())["totals"]
    assert totals == {
        "since": 0,
        "samples": 4,
        "seconds": 0.2,
        "out_of_memory": [],
        "memory_bytes": GIB,
        "limit_bytes": 4 * GIB,
        "plan": a_step().plan.to_dict(),
        "validations": {"out_of_memory": 0, "step": -1, "metrics": []},
    }
