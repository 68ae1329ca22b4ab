"""How far predictions are from what a process really holds at its peak, on the CPU, before and after one observation.

    python scripts/bench/trace_against_process.py Compact          measure one network, print its rows

``trace_accuracy.py`` calls it for every network. Real steps run in a process of their own, whose allocator gives back
what is freed; its peaks are read as a run's are, by ``MemoryMeter``, above what it held after a first small step. The
first prediction is that of a run: the prior fitted to six traces (``forecast_memory``) and the median of the belief
about processes. The corrected one has seen one other plan, the nearest in predicted bytes.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any, cast

import torch
from trace_cases import CPU, Case, all_cases

from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.core.plan import BATCH_SIZE, Axis, Plan, shape_of
from trainauto.core.process import ENVIRONMENT
from trainauto.core.units import MIB
from trainauto.forecast.trace_process import TraceProcess
from trainauto.forecast.traced_run import FakeRun
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.memory_forecast import MemoryForecast, PlanBytes, forecast_memory
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.release import release_memory


class InThisProcess:
    """Traces as ``TraceProcess`` gives them, of a run that no option file describes."""

    def __init__(self, run: FakeRun) -> None:
        self._run = run

    def trace(self, plan: Plan) -> PlanBytes:
        """Trace a step under a plan; reserved bytes are not asked for here."""
        trace = self._run.trace(plan)
        peaks = trace.phase_peaks_bytes
        peak, copied = trace.peak_bytes, trace.peak_with_copies_bytes
        return PlanBytes(trace.held_bytes, peak, peaks, None, 0.0, peak_with_copies_bytes=copied)


def forecast_of(case: Case, run: FakeRun) -> MemoryForecast:
    """Return what six traces between the bounds of the larger plans tell."""
    axes = []
    for name, unit, multiple, power in ((LQ_SIZE, "px", case.window_px, 2), (BATCH_SIZE, "samples", 1, 1)):
        values = [plan[name] for plan in case.larger]
        axes.append(Axis(name, unit, min(values), max(values), multiple, power=power))
    return forecast_memory(cast(TraceProcess, InThisProcess(run)), axes)


def measured(case: Case) -> list[int]:
    """Step for real under each larger plan; return the peaks of second steps, in bytes above the baseline."""
    budget.calm_allocator()
    torch.set_num_threads(1)
    model = case.real(torch.float32)
    model.step(Plan.of(**{BATCH_SIZE: 1, LQ_SIZE: case.window_px * -(-4 // case.window_px)}))
    for optimizer in model.model.optimizers.values():
        optimizer.zero_grad(set_to_none=True)
    release_memory(CPU)
    meter = MemoryMeter(CPU)
    meter.set_baseline()
    peaks = []
    for plan in case.larger:
        release_memory(CPU)
        model.step(plan)
        with meter.window() as window:
            model.step(plan)
        if window.reading is None:
            raise SystemExit("this platform does not tell what a process holds")
        peaks.append(window.reading.allocated)
    return peaks


def against_process(case: Case, run: FakeRun) -> list[dict[str, Any]]:
    """Compare both predictions with the process, plan by plan; its steps run in a child."""
    forecast = forecast_of(case, run)
    peaks = _measured_in_child(case.name)
    return errors_of(lambda: CostModel(*forecast.peaks_on("cpu")), case.larger, peaks)


def errors_of(model: Callable[[], CostModel], plans: Sequence[Plan], peaks: Sequence[int]) -> list[dict[str, Any]]:
    """Return what was predicted for each plan at first and after its nearest neighbour was seen.

    Args:
        model: makes what predicts, before it has seen anything.
        plans: those that were measured.
        peaks: of each.
    """
    first = model()
    guesses = [first.predict(shape_of(plan)) for plan in plans]
    rows = []
    for place, (plan, peak) in enumerate(zip(plans, peaks, strict=True)):
        near = min(
            (other for other in range(len(plans)) if other != place), key=lambda other: _apart(guesses, other, place)
        )
        corrected = model()
        corrected.observe(shape_of(plans[near]), peaks[near])
        second = corrected.predict(shape_of(plan))
        rows.append(
            {
                "plan": plan.to_dict(),
                "measured_bytes": peak,
                "first_bytes": guesses[place],
                "first_error": guesses[place] / peak - 1,
                "seen_plan": plans[near].to_dict(),
                "corrected_bytes": second,
                "corrected_error": second / peak - 1,
            }
        )
    return rows


def row_of(network: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a row of the table: largest errors, and the median of their sizes."""
    mib = [row["measured_bytes"] / MIB for row in rows]
    cells = []
    for which in ("first_error", "corrected_error"):
        sizes = sorted((abs(row[which]), row[which]) for row in rows)
        cells += [f"{sizes[len(sizes) // 2][0]:.1%}", f"{sizes[-1][1]:+.1%}"]
    return f"| {network} | {len(rows)} | {min(mib):.0f} to {max(mib):.0f} | {' | '.join(cells)} |"


def _apart(guesses: Sequence[int], first: int, other: int) -> float:
    return abs(log(guesses[first] / guesses[other]))


def _measured_in_child(network: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, __file__, network, "--measure"],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    peaks: list[int] = json.loads(done.stdout.splitlines()[-1])
    return peaks


def main(network: str, *options: str) -> None:
    """Measure one network; with ``--measure`` in this process, and print bytes."""
    with tempfile.TemporaryDirectory() as folder:
        case = next(case for case in all_cases(Path(folder)) if case.name == network)
        if options:
            print(json.dumps(measured(case)))
            return
        torch.set_num_threads(1)
        rows = against_process(case, case.fake(torch.float32))
        for row in rows:
            print(json.dumps(row))
        print(row_of(network, rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
