"""Our own side of the comparison: runs through ``train.py``, watched from outside, and the walk along the frontier."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from autobatch_cases import (
    CROPS_PX,
    ENOUGH_STEPS,
    FIRST_BATCH,
    LARGEST_BATCH,
    LOOKAHEAD,
    PERIOD_STEPS,
    ROOT,
    STEADY_STEPS,
    TARGET,
    WALKED_STEPS,
    Case,
    child_environment,
    controller,
    write_options,
)

MOST_STEPS = 700
PATIENCE_S = 900
POLL_S = 0.3
Record = dict[str, Any]


def steered(case: Case, policy: str, free_crop: bool, images: Path, folder: Path, target: float = TARGET) -> Record:
    """Train until a plan has held for a period and :data:`STEADY_STEPS` more; say how it came there."""
    crops_px = CROPS_PX[case.network] if free_crop else (case.lq_size, case.lq_size)
    file = write_options(folder, case, images, MOST_STEPS, controller(policy, crops_px, target))
    began = time.time()
    log, failure = _train(file, until=lambda records: _held(records) >= PERIOD_STEPS + STEADY_STEPS)
    if failure or not log:
        return {"failure": failure or "no step was made"}
    steps = [record for record in log if "step_s" in record]
    plan = steps[-1]["plan"]
    held = _held(steps)
    settled = len(steps) - held + PERIOD_STEPS
    steady = steps[settled:]
    decisions = _lines(file, "decisions.jsonl")
    plan_changes = [decision for decision in decisions if decision.get("kind") == "plan_change"]
    changes = [
        decision for decision in plan_changes if not (decision["early"] and decision["step"] == 1)
    ]  # that one chose the first batch
    if held < PERIOD_STEPS + STEADY_STEPS:
        failure = f"not settled after {len(steps)} steps"
    return {
        "failure": failure,
        "batch": plan["batch_size"],
        "lq_size": plan["lq_size"],
        "ooms": sum(step["ooms"] for step in steps),
        "ooms_after": sum(step["ooms"] for step in steady),
        "changes": len(changes),
        "steps": settled,
        "seconds": steps[min(settled, len(steps)) - 1]["time"] - began,
        "trained_seconds": steps[min(len(steps) - held + ENOUGH_STEPS, len(steps)) - 1]["time"] - began,
        "lost_steps": _lost(steps),
        "typical_bytes": int(median(step["peak"]["allocated"] for step in steady)) if steady else 0,
        "largest_bytes": max((step["peak"]["allocated"] for step in steady), default=0),
        "first_batch": steps[0]["plan"]["batch_size"],
        "reasons": [decision["reason"][:300] for decision in plan_changes],
        "peaks": _by_plan(steps),
        "first_jump": _period_after(plan_changes, steps, 0),
    }


def best(case: Case, free_crop: bool, images: Path, folder: Path) -> Record:
    """Find the largest plan whose peaks stay within the target, by training one plan after another.

    The budget is enforced as in every other run. First a few plans far apart tell where to look, then every
    plan there is trained for some steps. Crops come first, at the first batch; then batches at that crop. What is found
    is trained for as many steps as a policy's plan is: peaks of a process fall after its first dozen steps.
    """
    samples = [(batch, case.lq_size) for batch in (4, 8, 16, 32)]
    coarse = _walked(case, samples, images, folder / "coarse", stop_bytes=case.limit_bytes * 7 // 10)
    crop, walked = case.lq_size, dict(coarse)
    if free_crop:
        multiple = 8 if case.network == "swinir" else 1
        sides = range(case.lq_size, CROPS_PX[case.network][1] + 1, multiple)
        largest = _frontier(case, [(FIRST_BATCH, side) for side in sides], walked, images, folder / "crops")
        crop = largest[1] if largest else crop
    batches = [(batch, crop) for batch in range(2, LARGEST_BATCH + 1)]
    plan = _frontier(case, batches, walked, images, folder / "batches")
    if plan is None:
        return {"failure": "no plan stays within the target"}
    steps = PERIOD_STEPS + STEADY_STEPS
    longer = _walked(case, [plan], images, folder / "longer", stop_bytes=case.limit_bytes, steps=steps)
    steady = longer[plan][PERIOD_STEPS:]
    return {
        "failure": None,
        "batch": plan[0],
        "lq_size": plan[1],
        "typical_bytes": int(median(steady)),
        "largest_bytes": max(steady),
        "walked": [[*size, int(median(peaks)), max(peaks)] for size, peaks in sorted(walked.items())],
    }


Size = tuple[int, int]
Walked = dict[Size, list[int]]


def _frontier(case: Case, plans: Sequence[Size], walked: Walked, images: Path, folder: Path) -> Size | None:
    """Return the last of rising plans whose peaks stay within the target, and walk what was not walked yet."""
    for attempt in range(8):
        where = _expected(case, plans, walked)
        around = plans[max(0, where - 2) : where + 4]
        fresh = [plan for plan in around if plan not in walked]
        if not fresh:
            break
        walked |= _walked(case, fresh, images, folder / str(attempt), stop_bytes=case.target_bytes)
    fitting = [plan for plan in plans if plan in walked and max(walked[plan]) <= case.target_bytes]
    return fitting[-1] if fitting else None


def _expected(case: Case, plans: Sequence[Size], walked: Walked) -> int:
    """Return the place of the last plan expected to fit, from lines between the plans that were walked."""
    known = sorted((batch * side**2, max(peaks)) for (batch, side), peaks in walked.items())
    fitting = [point for point in known if point[1] <= case.target_bytes] or known[:1]
    work, peak = fitting[-1]
    below = [point for point in known if point[0] < 0.8 * work] or [(0, 0)]
    slope = max(1e-9, (peak - below[-1][1]) / (work - below[-1][0]))
    room = work + (case.target_bytes - peak) / slope
    return max([place for place, (batch, side) in enumerate(plans) if batch * side**2 <= room], default=0)


def _walked(
    case: Case, plans: Sequence[Size], images: Path, folder: Path, stop_bytes: int, steps: int = WALKED_STEPS
) -> Walked:
    """Train rising plans for some steps each, in one run, until one passes ``stop_bytes``; return their peaks."""
    each = LOOKAHEAD + steps + 1
    changes = [
        {"step": 1 + place * each, "batch_size": batch, "lq_size": side} for place, (batch, side) in enumerate(plans)
    ]
    total = 1 + each * len(plans) + LOOKAHEAD
    file = write_options(folder, case, images, total, {"PlanSchedule": {"changes": changes}})

    def passed(records: Sequence[Record]) -> bool:
        peaks = _peaks(records)
        return any(len(readings) >= steps and max(readings) > stop_bytes for readings in peaks.values())

    log, failure = _train(file, until=passed)
    if failure:
        raise RuntimeError(f"{case.name}: the walk along the frontier failed: {failure}")
    wanted = set(plans)
    return {plan: peaks for plan, peaks in _peaks(log).items() if plan in wanted and len(peaks) >= steps}


def _peaks(records: Sequence[Record]) -> Walked:
    peaks: Walked = {}
    for record in records:
        whole = not record["ooms"] and record["samples"] == record["plan"]["batch_size"]
        if whole and record["extent"] == record["plan"]["lq_size"] and record["plan"]["micro_batches"] == 1:
            peaks.setdefault((record["plan"]["batch_size"], record["extent"]), []).append(record["peak"]["allocated"])
        elif record["ooms"]:  # a failure says that the plan needs more than there is
            size = (record["plan"]["batch_size"], record["plan"]["lq_size"])
            peaks[size] = [record["peak"]["limit"] + 1] * (PERIOD_STEPS + STEADY_STEPS)
    return peaks


def _by_plan(steps: Sequence[Record]) -> list[list[int]]:
    """Return for each plan in order: batch, crop, and the peaks of its whole steps."""
    groups: list[list[int]] = []
    for step in steps:
        key = [step["plan"]["batch_size"], step["plan"]["lq_size"]]
        if step["samples"] != key[0] or step["extent"] != key[1]:
            continue
        if not groups or groups[-1][:2] != key:
            groups.append(key)
        groups[-1].append(step["peak"]["allocated"])
    return groups


def _period_after(changes: Sequence[Record], steps: Sequence[Record], number: int) -> Record | None:
    """Return what was predicted of the plan of a change, and what its first period showed."""
    if len(changes) <= number:
        return None
    plan = changes[number]["plan"]
    under = [step for step in steps if step["plan"] == plan and step["samples"] == plan["batch_size"]][:PERIOD_STEPS]
    if not under:
        return None
    peaks = [step["peak"]["allocated"] for step in under]
    return {"plan": plan, "expected": changes[number]["predicted"], "peaks": peaks}


def _held(records: Sequence[Record]) -> int:
    """Count the last steps that trained whole batches of one plan without running out of memory."""
    steps = [record for record in records if "step_s" in record]
    held = 0
    for step in reversed(steps):
        if step["plan"] != steps[-1]["plan"] or step["ooms"] or step["samples"] != step["plan"]["batch_size"]:
            break
        held += 1
    return held


def _lost(steps: Sequence[Record]) -> int:
    """Count steps whose samples were trained twice or skipped: each step begins where the last one ended."""
    return sum(step["first_sample"] + step["samples"] != after["first_sample"] for step, after in pairwise(steps))


def _train(file: Path, until: Callable[[Sequence[Record]], bool]) -> tuple[list[Record], str | None]:
    """Run train.py as a person does, and ask it to end (SIGTERM) when ``until`` says so; return its records."""
    shutil.rmtree(file.parent / "experiments", ignore_errors=True)
    command = [sys.executable, str(ROOT / "train.py"), "-opt", file.name]
    began = time.monotonic()
    with (file.parent / "output.txt").open("w") as output:
        process = subprocess.Popen(
            command, cwd=file.parent, env=child_environment(), stdout=output, stderr=subprocess.STDOUT
        )
        signalled = False
        while process.poll() is None:
            time.sleep(POLL_S)
            if not signalled and until(_lines(file, "training_log.jsonl")):
                process.send_signal(signal.SIGTERM)
                signalled = True
            if time.monotonic() - began > PATIENCE_S:
                process.kill()
    ended = signalled or process.returncode == 0
    last = (file.parent / "output.txt").read_text().splitlines()[-3:]
    return _lines(file, "training_log.jsonl"), None if ended else f"exit code {process.returncode}: {' '.join(last)}"


def _lines(file: Path, name: str) -> list[Record]:
    path = file.parent / "experiments" / "run" / "current" / name
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    records = [json.loads(line) for line in whole.splitlines()]
    return [record for record in records if name != "training_log.jsonl" or "step_s" in record]
