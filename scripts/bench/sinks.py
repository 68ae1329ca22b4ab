"""What each sink of a run costs, as a share of steps of 200 ms, and how large the page of a long run is.

    python scripts/bench/sinks.py [--steps 20000] [--folder DIR] [--only-page] [--trackers] [--json FILE]

The steps are simulated: sinks get records such as a training's, and the page is told that each step took 200 ms, so
that it is written as often as in a run of that length. Real is what they cost: CPU time of the thread that calls them,
and for all together that of the threads they write in, too. A validation with four pictures comes every 5,000 steps.
--only-page leaves all but the records and the page out, for a run of a million steps; --trackers tells wandb, mlflow
and trackio, too, on this machine alone: their packages must be installed.

Exit code 1 if all sinks together take more than 0.5 % of the time, or the page more than 0.3 %.
"""

import argparse
import io
import platform
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from simulated_run import STEP_S, end_of, steps_of, summary_of, validation_of

from trainauto.builders.trackers import tracker_sinks
from trainauto.core.decisions import Decision
from trainauto.core.files import write_json_atomically
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture
from trainauto.options.tracker_options import MlflowOptions, TrackerOptions, TrackioOptions, WandbOptions
from trainauto.reporting.dashboard.dashboard_sink import Dashboard
from trainauto.reporting.dashboard.page_file import page_in, page_json
from trainauto.reporting.dashboard.pictures import pictures_of
from trainauto.reporting.default_sinks import default_sinks
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.sinks import Sink
from trainauto.storage.run_directory import RunDirectory

MOST_OF_ALL, MOST_OF_PAGE = 0.005, 0.003
LOGGED_EVERY, VALIDATED_EVERY = 100, 5_000


class Clock:
    """The time of a run whose steps take 200 ms each, and that pays for what its sinks do."""

    def __init__(self) -> None:
        self.simulated_s = 0.0

    def __call__(self) -> float:
        """Return seconds that only grow."""
        return self.simulated_s + time.perf_counter()


def main() -> int:
    """Measure, print a table, say whether the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="keep the run there")
    parser.add_argument("--only-page", action="store_true", help="records and page alone")
    parser.add_argument("--trackers", action="store_true", help="wandb, mlflow and trackio, too, offline")
    parser.add_argument("--json", type=Path)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = RunDirectory.create(parsed.folder or Path(temporary), "simulated")
        found = measure(run, parsed.steps, only_page=parsed.only_page, trackers=parsed.trackers)
    for name, microseconds in found["us_a_step"].items():
        print(f"{name:<14}{microseconds:9.1f} us a step  {microseconds / 1e6 / STEP_S:8.4%}")
    print(
        f"page: {found['chart_bytes'] / 1e6:.2f} MB without its pictures, {found['page_bytes'] / 1e6:.2f} MB with them"
    )
    if parsed.json:
        write_json_atomically(parsed.json, found)
    shares = {name: microseconds / 1e6 / STEP_S for name, microseconds in found["us_a_step"].items()}
    failed = shares["all"] > MOST_OF_ALL or shares["Dashboard"] > MOST_OF_PAGE
    if failed:
        print(f"more than {MOST_OF_ALL:.1%} of the time, or {MOST_OF_PAGE:.1%} for the page")
    return int(failed)


def measure(run: RunDirectory, steps: int, *, only_page: bool, trackers: bool = False) -> dict[str, Any]:
    """Report a simulated run to its sinks; returns CPU microseconds a step by sink and of all, and the page's size."""
    clock = Clock()
    page = Dashboard(run, clock=clock)
    others = default_sinks(run, print_freq=LOGGED_EVERY, stream=io.StringIO())
    sinks: list[Sink] = [page if isinstance(sink, Dashboard) else sink for sink in others]
    if only_page:
        sinks = [JsonLines(run), page]
    if trackers:
        options = TrackerOptions(
            wandb=WandbOptions(project="simulated"),
            mlflow=MlflowOptions(experiment="simulated"),
            trackio=TrackioOptions(project="simulated"),
        )
        sinks += tracker_sinks(options, run, run.path.parents[1], "simulated", LOGGED_EVERY)
    run.write_config({"name": "simulated"})
    spent: defaultdict[str, float] = defaultdict(float)
    # Threads that sinks write in are paid for, too; what makes the records is not.
    all_s = report(run, steps, sinks, clock, spent) - report(run, steps, [], Clock(), defaultdict(float))
    shown = page_in(run.dashboard)
    pictures_bytes = sum(len(page_json(block)) for block in pictures_of(shown))
    page_bytes = run.dashboard.stat().st_size
    return {
        "steps": steps,
        "machine": platform.processor() or platform.machine(),
        "us_a_step": {name: seconds / steps * 1e6 for name, seconds in [*spent.items(), ("all", all_s)]},
        "chart_bytes": page_bytes - pictures_bytes,
        "page_bytes": page_bytes,
    }


def report(run: RunDirectory, steps: int, sinks: Sequence[Sink], clock: Clock, spent: defaultdict[str, float]) -> float:
    """Report a simulated run; returns CPU seconds of the process, and adds those of each sink's calls to ``spent``."""
    began_s = time.process_time()

    def tell(event: Callable[[Sink], None]) -> None:
        for sink in sinks:
            start_s = time.thread_time()
            event(sink)
            spent[type(sink).__name__] += time.thread_time() - start_s

    tell(lambda sink: sink.start(summary_of(steps, str(run.path))))
    for record, decisions, progress in steps_of(steps):
        clock.simulated_s += record.data_seconds + record.step_seconds
        tell(partial(_step, record, decisions, progress))
        if record.step % VALIDATED_EVERY == 0:
            validated, pictures = validation_of(record.step)
            tell(partial(_validation, validated, pictures))
    tell(lambda sink: sink.end(end_of(steps)))
    tell(lambda sink: sink.close())
    return time.process_time() - began_s


def _step(record: StepRecord, decisions: Sequence[Decision], progress: Progress, sink: Sink) -> None:
    sink.step(record, decisions, progress)


def _validation(record: ValidationRecord, pictures: Sequence[Picture], sink: Sink) -> None:
    sink.validation(record, pictures, ())


if __name__ == "__main__":
    sys.exit(main())
