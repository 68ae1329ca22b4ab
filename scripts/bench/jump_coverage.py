"""How often a jump goes too far: plans chosen before anything was measured, held against what they then needed.

    python scripts/bench/jump_coverage.py [--worlds 2000] [--jumps 25] [--real build/real_jumps.jsonl] [--write FOLDER]

a. Simulated worlds: the generator of the tests (``tests/unit/worlds.py``).
b. The simulated allocator: networks of this repository, traced as on CUDA, those with convolutions with and without
   cuDNN's benchmark mode; what kernels take beyond the trace is added to the traced events, the allocator gets the
   limit of a card, steps of the first plan, an emptied cache, and then steps of the plan jumped to. Running out of
   memory is the allocator's own error there. Native and expandable segments.
c. Real budgets: runs of ``real_jumps.py``, where there are any.

Counts above target and beyond the limit are given with Clopper and Pearson's one-sided upper bound at 95 %.

In (b) one in four allocations of at least 64 KiB comes with a workspace, freed at once: a number in (0, 1) which the
allocation keeps for all plans, but for one in ten (plan, allocation) pairs that draw anew, as where a library takes
another algorithm, times the network's largest one. That follows what was seen on cards (``fit_belief.py``): in
benchmark mode, beside the traced room, up to 3.8 % of the step's peak and once in 88 networks 18.6 %; without it up to
32 MiB, and in six networks of 29 up to 7.9 %; 0.3 to 2 % for transformers. Limits are drawn between 512 MiB (or 1.3
times what the smallest plan needs) and 0.9 of what the largest does, evenly in the logarithm.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import date
from itertools import count
from pathlib import Path
from statistics import median

import torch
from jump_coverage_allocator import NETWORKS, TRANSFORMERS, Traced, a_controller, first_batch, in_allocator
from jump_coverage_table import PROBED, WORLDS, Jump, page

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.unit.worlds import FIRST_TEST_SEED, MARGIN, TARGET, World, worlds  # noqa: E402
from trainauto.control.jump_policy import JumpInput, decide  # noqa: E402
from trainauto.core.decisions import RunFacts  # noqa: E402
from trainauto.core.plan import Plan, shape_of  # noqa: E402
from trainauto.core.records import PeakReading  # noqa: E402
from trainauto.core.units import MIB  # noqa: E402
from trainauto.memory.cost.cost_model import CostModel  # noqa: E402
from trainauto.memory.cost.traced_fit import fit_prior  # noqa: E402
from trainauto.memory.tracing.cuda_autocast import cast_as_cuda  # noqa: E402
from trainauto.memory.tracing.cuda_operators import compute_as_cuda  # noqa: E402
from trainauto.memory.tracing.fake_tensors import group_as_cuda  # noqa: E402

PERIODS_AFTER = 8
"""Periods whose largest peak is held against target and limit."""


# --- (a) simulated worlds


def in_worlds(number: int) -> dict[str, list[Jump]]:
    """Return the first jump, the corrected one, and the plan that probes lead to, of so many worlds."""
    jumps: dict[str, list[Jump]] = {"first jump": [], "after one correction": []}
    probed = [_probed(world) for world in worlds(FIRST_TEST_SEED, number)]
    for world in worlds(FIRST_TEST_SEED, number):
        cost = CostModel(fit_prior(world.traced(), world.window_px), world.belief)
        plan, peak = _start(world), None
        for period, name in enumerate(jumps):
            plan = decide(_in_world(world, plan, cost, peak)).plan
            expected = cost.predict(shape_of(plan))
            peak = world.of(plan, period)
            jumps[name].append(
                Jump(
                    peak > TARGET * world.limit,
                    peak > world.limit,
                    peak / (TARGET * world.limit),
                    abs(expected / peak - 1),
                )
            )
            cost.observe(shape_of(plan), peak)
    return {**jumps, PROBED: probed}


def _probed(world: World) -> Jump:
    automation = a_controller(world.axes)
    automation.controller.set_prior((fit_prior(world.traced(), world.window_px), world.belief))
    periods = count(1)

    def measured(plan: Plan) -> PeakReading | None:
        peak = world.of(plan, next(periods))
        return PeakReading(peak, limit=world.limit, available=world.limit) if peak <= world.limit else None

    plan = first_batch(automation, RunFacts(world.axes, _start(world)), world.limit, measured)
    peaks = [world.of(plan, 100 + period) for period in range(PERIODS_AFTER)]
    expected = automation.expected_bytes(plan) or 0
    most = max(peaks)
    return Jump(
        most > TARGET * world.limit,
        most > world.limit,
        most / (TARGET * world.limit),
        abs(expected / median(peaks) - 1),
    )


def _start(world: World) -> Plan:
    lq, batch = world.axes
    return Plan.of(batch_size=batch.clamp(world.configured.batch_size), lq_size=lq.clamp(world.configured["lq_size"]))


def _in_world(world: World, plan: Plan, cost: CostModel, peak: int | None) -> JumpInput:
    return JumpInput(
        plan=plan,
        limit_bytes=world.limit,
        target=TARGET,
        margin=MARGIN,
        axes=world.axes,
        configured_batch=world.configured.batch_size,
        cost=cost,
        peak_bytes=peak,
    )


# --- (c) real budgets


def in_runs(file: Path) -> dict[str, list[Jump]]:
    """Return the first plans of real runs, chosen by probes."""
    lines = file.read_text().splitlines() if file.exists() else []
    jumps = []
    for result in map(json.loads, lines):
        limit = result["budget_mib"] * MIB
        if result.get("failure"):
            jumps.append(Jump(True, True, 1.0, 0.0))
            continue
        peaks, expected = result["first_jump"]["peaks"], result["first_jump"]["expected"]
        largest, typical = max(peaks), median(peaks)
        error = abs(expected / typical - 1) if expected else 0.0
        beyond = result["ooms"] > 0 or largest > limit
        jumps.append(Jump(largest > TARGET * limit, beyond, largest / (TARGET * limit), error))
    return {PROBED: jumps}


def _add_allocator(coverage: dict[str, dict[str, list[Jump]]], jumps_each: int, seed: int) -> None:
    """Add jumps in the simulated allocator to the coverage, by mode of its segments."""
    with tempfile.TemporaryDirectory() as folder:
        for name, benchmarked in [(name, on) for name in NETWORKS for on in (False, True)]:
            if benchmarked and name in TRANSFORMERS:
                continue
            traced = Traced(name, benchmarked, Path(folder))
            for expandable in (False, True):
                mode = "expandable" if expandable else "native"
                place = coverage.setdefault(f"simulated allocator, {mode}", {})
                for what, jumps in in_allocator(traced, expandable, jumps_each, seed).items():
                    place.setdefault(what, []).extend(jumps)
                print(f"{name}, {mode}, benchmark mode {benchmarked}: {len(place['first jump'])} jumps", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=2000)
    parser.add_argument("--jumps", type=int, default=25, help="limits for each network and mode")
    parser.add_argument("--seed", type=int, default=2, help="of networks' workspaces and limits")
    parser.add_argument("--real", type=Path, default=ROOT / "build" / "real_jumps.jsonl", help="of real_jumps.py")
    parser.add_argument("--write", type=Path, help="folder for coverage.md and coverage.json")
    parser.add_argument("--machine", default="a virtual machine")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cast_as_cuda()
    compute_as_cuda()
    group_as_cuda()
    coverage = {WORLDS: in_worlds(arguments.worlds)}
    _add_allocator(coverage, arguments.jumps, arguments.seed)
    coverage["real budgets on the CPU"] = in_runs(arguments.real)
    known = {
        "command": "python scripts/bench/jump_coverage.py --write docs/benchmarks",
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores of {arguments.machine}, Python {platform.python_version()}, "
        f"torch {torch.__version__}",
    }
    text = page(coverage, known)
    print(text)
    if arguments.write:
        (arguments.write / "coverage.md").write_text(text)
        counts = {
            place: {
                what: {
                    "jumps": len(jumps),
                    "above_target": sum(jump.above for jump in jumps),
                    "beyond_limit": sum(jump.beyond for jump in jumps),
                    "uses": [round(jump.use, 4) for jump in jumps],
                    "errors": [round(jump.error, 5) for jump in jumps],
                }
                for what, jumps in kinds.items()
            }
            for place, kinds in coverage.items()
        }
        (arguments.write / "coverage.json").write_text(json.dumps({**known, "found": counts}) + "\n")
    return 1 if any(jump.beyond for kinds in coverage.values() for jump in kinds[PROBED]) else 0


if __name__ == "__main__":
    sys.exit(main())
