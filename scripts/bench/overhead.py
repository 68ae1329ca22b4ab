"""What hooks, meters and reporting cost, as a share of a step of the quick start.

    python scripts/bench/overhead.py [--steps 200] [--rounds 40] [--block 8] [--no-budget] [--json FILE]

The quick start is built as train.py builds it, controller and memory budget included (a budget makes steps longer and
the share the smaller for it: --no-budget leaves it out), and trained by the engine's own loop under the plan that it
settles at. Plan changes are asked for, reported and not carried out, so that all steps are alike.

1. Share: CPU time of reporter, automations, controls and meter (in the thread that runs them) and of TensorBoard's
   writing thread, over the process's CPU time of the rest of the step. Torch's idle threads spin for a moment after
   each operation, whatever comes next; ``time.process_time``, which includes that spinning, is printed beside it.
2. A/B: blocks of steps with everything on, everything on again, and everything off take turns in one process; ratios of
   wall time within each round give on/off and, as the noise, on/on. Intervals are bootstrapped medians.

Exit code 1 if the share is above 1 % or the whole interval of on/off above 1.01.
"""

import argparse
import contextlib
import itertools
import os
import platform
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from trainauto.build import build_run
from trainauto.core.automation import Automation
from trainauto.core.decisions import Decision, PlanChange
from trainauto.core.files import write_json_atomically
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, ReporterLike, RunEnd, RunSummary
from trainauto.engine.controls import Controls
from trainauto.engine.loop import train
from trainauto.engine.run import Run
from trainauto.memory.monitor.meter import MemoryMeter, Window
from trainauto.options.load import load_options

QUICKSTART = Path(__file__).resolve().parents[2] / "options/train/quickstart.yml"
WARM_UP_STEPS = 20
MOST_SHARE, MOST_RATIO = 0.01, 1.01
SETTLED = ("datasets:train:lq_size=48", "datasets:train:batch_size_per_gpu=12")

Result = TypeVar("Result")


class Spent:
    """CPU seconds by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.process_s = 0.0

    def on(self, name: str, call: Callable[[], Result]) -> Result:
        """Call, and note what it took."""
        start, process_start = time.thread_time(), time.process_time()
        try:
            return call()
        finally:
            self.seconds[name] += time.thread_time() - start
            self.process_s += time.process_time() - process_start

    def clear(self) -> None:
        """Begin anew."""
        self.seconds.clear()
        self.process_s = 0.0


class TimedAutomation:
    """An automation whose events are timed."""

    def __init__(self, inner: Automation, spent: Spent) -> None:
        self.name, self.priority = inner.name, inner.priority
        self._inner, self._spent = inner, spent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # every other event

    def on_step_end(self, record: StepRecord) -> Decision | None:
        """Pass on, timed."""
        return self._spent.on("automations", lambda: self._inner.on_step_end(record))


class TimedControls(Controls):
    """Controls that leave the plan as it is and are timed; they share the state of those they replace."""

    def __init__(self, inner: Controls, spent: Spent) -> None:
        self.__dict__ = inner.__dict__
        self._spent = spent

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Carry out everything but changes of the plan."""
        others = [decision for decision in decisions if not isinstance(decision, PlanChange)]
        self._spent.on("controls", lambda: super(TimedControls, self).apply(others))


class TimedMeter(MemoryMeter):
    """A meter whose windows are timed where they open and close."""

    def __init__(self, inner: MemoryMeter, spent: Spent) -> None:
        self.__dict__ = inner.__dict__
        self._spent = spent

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Open, yield, close."""
        real = super().window()
        window = self._spent.on("meter", real.__enter__)
        try:
            yield window
        finally:
            self._spent.on("meter", lambda: real.__exit__(None, None, None))


class NoMeter(MemoryMeter):
    """A meter that reads nothing."""

    def __init__(self, inner: MemoryMeter) -> None:
        self.__dict__ = inner.__dict__

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Yield a window without a reading."""
        yield Window()


class Listener:
    """A reporter in front of the real one."""

    def __init__(self, inner: ReporterLike) -> None:
        self.inner = inner

    def start(self, summary: RunSummary) -> None:
        """Pass on."""
        self.inner.start(summary)

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Pass on."""
        self.inner.step(record, decisions, progress)

    def validation(
        self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision] = ()
    ) -> None:
        """Pass on."""
        self.inner.validation(record, pictures, decisions)

    def sync(self) -> None:
        """Pass on."""
        self.inner.sync()

    def end(self, summary: RunEnd) -> None:
        """Pass on."""
        self.inner.end(summary)


class ShareClock(Listener):
    """Times the reporter, and whole steps from the end of the warm-up on."""

    def __init__(self, inner: ReporterLike, spent: Spent) -> None:
        super().__init__(inner)
        self._spent = spent
        self._begun_s = self._writers_begun_s = 0.0
        self.total_s = self.writers_s = 0.0

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Pass on, timed; what a step took ends here."""
        self._spent.on("reporting", lambda: self.inner.step(record, decisions, progress))
        if record.step == WARM_UP_STEPS:
            self._spent.clear()
            self._begun_s, self._writers_begun_s = time.process_time(), background_seconds()
        self.total_s = time.process_time() - self._begun_s
        self.writers_s = background_seconds() - self._writers_begun_s


def background_seconds() -> float:
    """Return the CPU time of Python's other threads so far: TensorBoard writes its files in one (0 where unknown)."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    others = [thread.ident for thread in threading.enumerate() if thread is not threading.main_thread()]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in others if ident)


class Blocks(Listener):
    """Switches hooks, meter and reporting on and off between blocks of steps, and times the blocks."""

    def __init__(self, run: Run, rounds: int, block: int) -> None:
        super().__init__(run.reporter)
        self._run, self._block = run, block
        self._parts = {True: (run.meter, run.journal.automations), False: (NoMeter(run.meter), ())}
        orders = itertools.cycle(itertools.permutations(("on", "again", "off")))
        self._plan = [(number, name) for number, order in zip(range(rounds), orders, strict=False) for name in order]
        self.seconds: list[dict[str, float]] = [{} for _ in range(rounds)]
        self._on = True
        self._begun_s = 0.0

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """Report where reporting is on; end a block and begin the next."""
        if self._on:
            self.inner.step(record, decisions, progress)
        done, rest = divmod(record.step - WARM_UP_STEPS, self._block)
        if rest or done < 0:
            return
        if done > 0:
            number, name = self._plan[done - 1]
            self.seconds[number][name] = time.perf_counter() - self._begun_s
        if done < len(self._plan):
            self._on = self._plan[done][1] != "off"
            self._run.meter, self._run.journal.automations = self._parts[self._on]
            self._begun_s = time.perf_counter()


@contextmanager
def quick_start(steps: int, with_budget: bool) -> Iterator[Run]:
    """Build the quick start for so many steps, in a folder that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        forced = [
            f"path:experiments_root={folder}",
            f"datasets:train:cache_dir={folder}/cache",
            f"datasets:val:cache_dir={folder}/cache",
            f"train:total_iter={steps}",
            f"train:warmup_steps={min(50, steps // 2)}",
            "val:val_enabled=false",
            f"logger:save_checkpoint_freq={steps}",
            *SETTLED,
            *([] if with_budget else ["memory:cpu_budget=null"]),
        ]
        # The console is a part of reporting: it writes plain lines into a file here.
        with (
            (Path(folder) / "console").open("w") as console,
            contextlib.redirect_stdout(console),
            build_run(load_options(QUICKSTART, forced)) as run,
        ):
            yield run


def measure_share(steps: int, with_budget: bool) -> dict[str, Any]:
    """Return the CPU milliseconds a step of each part, and their share of the rest of the step."""
    spent = Spent()
    with quick_start(WARM_UP_STEPS + steps, with_budget) as run:
        clock = ShareClock(run.reporter, spent)
        run.reporter = clock
        run.journal.automations = [TimedAutomation(automation, spent) for automation in run.journal.automations]
        run.journal.controls = TimedControls(run.controls, spent)
        run.meter = TimedMeter(run.meter, spent)
        train(run)
    parts_s = dict(spent.seconds) | {"TensorBoard's thread": clock.writers_s}
    ours_s = sum(parts_s.values())
    return {
        "parts_ms": {name: 1000 * seconds / steps for name, seconds in sorted(parts_s.items())},
        "step_ms": 1000 * (clock.total_s - ours_s) / steps,
        "share": ours_s / (clock.total_s - ours_s),
        "share_with_spinning": (spent.process_s + clock.writers_s) / (clock.total_s - ours_s),
    }


def measure_blocks(rounds: int, block: int, with_budget: bool) -> dict[str, Any]:
    """Return on/off and on/on: the median of the ratios of wall time and its 95 % interval."""
    with quick_start(WARM_UP_STEPS + 3 * rounds * block, with_budget) as run:
        run.journal.controls = TimedControls(run.controls, Spent())
        blocks = Blocks(run, rounds, block)
        run.reporter = blocks
        train(run)
    ratios = {other: [block["on"] / block[other] for block in blocks.seconds] for other in ("off", "again")}
    return {"on/off": interval(ratios["off"]), "on/on": interval(ratios["again"])}


def interval(ratios: Sequence[float], resamples: int = 10_000) -> dict[str, float]:
    """Return the median with its 95 % bootstrap interval."""
    drawn = np.random.default_rng(0).choice(np.asarray(ratios), (resamples, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high), "pairs": len(ratios)}


def main() -> int:
    """Measure, print, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="steps of the share")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of three blocks; 30 and more for a verdict")
    parser.add_argument("--block", type=int, default=8, help="steps of a block")
    parser.add_argument("--no-budget", action="store_true", help="without the memory budget of the quick start")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    share = measure_share(arguments.steps, not arguments.no_budget)
    blocks = measure_blocks(arguments.rounds, arguments.block, not arguments.no_budget)

    print(f"CPU time a step: {share['step_ms']:.1f} ms, and besides:")
    for name, part_ms in share["parts_ms"].items():
        print(f"  {name:22}{part_ms:8.3f} ms")
    print(f"  {'together':22}{share['share']:8.2%} of the step (at most {MOST_SHARE:.0%});", end=" ")
    print(f"{share['share_with_spinning']:.2%} with torch's threads spinning meanwhile")
    for name, interval in blocks.items():
        bounds = f"[{interval['low']:.4f}, {interval['high']:.4f}]"
        print(f"{name:8}{interval['median']:.4f}  95 % {bounds}, {interval['pairs']} pairs")
    if arguments.json:
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        results = {"share": share, "blocks": blocks, "block": arguments.block, "budget": not arguments.no_budget}
        write_json_atomically(arguments.json, {**results, **machine})
    return int(share["share"] > MOST_SHARE or blocks["on/off"]["low"] > MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
