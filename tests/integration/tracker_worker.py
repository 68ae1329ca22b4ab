"""A process that reports a run to wandb, and kills wandb's own process in the middle; prints what came of it.

python -m tests.integration.tracker_worker FOLDER
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.unit.reporting.builders import a_progress, a_step, a_summary
from tests.unit.reporting.trackers.listening import listening
from trainauto.core.run_events import RunEnd
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.trackers.sink import Trackers
from trainauto.reporting.trackers.tracker_ids import TrackerIds
from trainauto.reporting.trackers.wandb_tracker import WandbTracker
from trainauto.storage.run_directory import RunDirectory


def main(folder: Path) -> None:
    run = RunDirectory.create(folder, "demo")
    run.write_config({"name": "demo"})
    ids = TrackerIds(run.trackers)
    tracker = WandbTracker("demo", folder, ids, is_online=False)
    sink = Trackers([tracker], run, ids, "demo", 1, longest_wait_s=3.0)
    with listening() as said, Reporter([JsonLines(run), sink]) as reporter:
        reporter.start(a_summary())
        reporter.step(a_step(1), (), a_progress(1))
        killed = killed_helpers(time.monotonic() + 20.0)
        longest_s = 0.0
        for step in range(2, 201):
            start = time.perf_counter()
            reporter.step(a_step(step), (), a_progress(step))
            longest_s = max(longest_s, time.perf_counter() - start)
        start = time.perf_counter()
        reporter.end(RunEnd("completed", "done", a_progress(200)))
        end_s = time.perf_counter() - start
    print(json.dumps({"killed": killed, "longest_step_s": longest_s, "end_s": end_s, "said": said}))


def killed_helpers(deadline_s: float) -> int:
    """Wait for wandb to have begun, then kill its processes; return how many there were."""
    while time.monotonic() < deadline_s:
        helpers = [
            int(process.name) for process in Path("/proc").iterdir() if process.name.isdigit() and is_ours(process)
        ]
        if helpers:
            time.sleep(0.5)  # it takes the first reports
            for helper in helpers:
                os.kill(helper, signal.SIGKILL)
            return len(helpers)
        time.sleep(0.05)
    return 0


def is_ours(process: Path) -> bool:
    try:
        words, status = (process / "cmdline").read_bytes(), (process / "stat").read_text()
    except OSError:
        return False
    parent = int(status.rsplit(")", 1)[1].split()[1])
    return b"wandb-core" in words and parent == os.getpid()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
