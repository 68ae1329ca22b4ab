"""How often a jump goes too far: plans chosen before anything was measured, held against what they then needed.

    python scripts/bench/jump_coverage.py [--worlds 2000] [--jumps 40] [--cells build/autobatch.jsonl] [--write FOLDER]

a. Simulated worlds: the generator of the tests (``tests/unit/memory/worlds.py``), whose distribution of workspaces was
   written down before any constant of the surface was tuned.
b. The simulated allocator: networks of this repository, traced as on CUDA; kernel workspaces are added to the traced
   events, the allocator gets the limit of a card, steps of the first plan, an emptied cache, and then steps of the plan
   jumped to. Running out of memory is the allocator's own error there. Native and expandable segments.
c. Real budgets: the first jumps of autobatch's cells, where there are any.

Counts above target and beyond the limit are given with Clopper and Pearson's one-sided upper bound at 95 %.

The distribution of (b) was written down before its first run: a network draws a strength from 0 to
25 % of the step's live peak, or 1 % if it is a transformer. One in four allocations of at least 64 KiB comes with a
workspace, freed at once, of that strength times a number in (0, 1) which the allocation keeps for all plans, but for
one in ten (plan, allocation) pairs that draw anew, as where a library takes another algorithm. Limits are drawn between
512 MiB (or 1.3 times what the smallest plan needs) and 0.9 of what the largest does, evenly in the logarithm. One thing
was changed after a first look at 36 jumps: limits of 24 to 512 MiB, of which segments of 20 MiB are a large part, were
drawn too, and the first plan did not fit some of them. No card is like that.
"""

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch
import yaml
from jump_coverage_table import PROBED, WORLDS, Jump, page

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.unit.memory.worlds import FIRST_TEST_SEED, MARGIN, TARGET, World, worlds  # noqa: E402
from trainauto.assembly.foresight import spread  # noqa: E402
from trainauto.assembly.tracing import FakeRun  # noqa: E402
from trainauto.automations import DynamicBatchSizeOptimizer  # noqa: E402
from trainauto.core.decisions import RunFacts  # noqa: E402
from trainauto.core.plan import Axis, Plan  # noqa: E402
from trainauto.core.records import PeakReading, Probe  # noqa: E402
from trainauto.engine.probe import MOST_PROBES  # noqa: E402
from trainauto.memory.allocator import (  # noqa: E402
    AllocationEvent,
    CachingAllocator,
    SimulatedOutOfMemory,
    repeated,
    replay,
)
from trainauto.memory.belief import ALLOCATED, RESERVED_EXPANDABLE, RESERVED_NATIVE, Belief  # noqa: E402
from trainauto.memory.cuda_autocast import cast_as_cuda  # noqa: E402
from trainauto.memory.fake import group_as_cuda  # noqa: E402
from trainauto.memory.jump_policy import Situation, choose  # noqa: E402
from trainauto.memory.prior import Prior, fit_prior, reserved_prior  # noqa: E402
from trainauto.memory.surface import CostModel, shape_of  # noqa: E402
from trainauto.memory.trace import Trace  # noqa: E402
from trainauto.options.load import load_options  # noqa: E402

MIB = 2**20
SMALLEST_LIMIT = 512 * MIB
STEPS = 3
"""Steps of a plan before its reserved bytes count: the cache that one step leaves may not fit the next."""

NETWORKS: dict[str, dict[str, Any]] = {
    "compact": {"type": "compact", "num_feat": 64, "num_conv": 8},
    "compact wide": {"type": "compact", "num_feat": 128, "num_conv": 4},
    "span": {"type": "span", "feature_channels": 32},
    "rrdbnet 2": {"type": "rrdbnet", "num_block": 2},
    "rrdbnet 4": {"type": "rrdbnet", "num_feat": 32, "num_block": 4, "num_grow_ch": 16},
    "swinir": {"type": "swinir_light", "embed_dim": 36, "depths": [2, 2], "num_heads": [2, 2]},
}
TRANSFORMERS = ("swinir",)
FIRST = Plan.of(batch_size=4, lq_size=32)
PERIODS_AFTER = 8
"""Periods whose largest peak is held against target and limit."""


def first_batch(
    automation: DynamicBatchSizeOptimizer, facts: RunFacts, limit: int, measured: Callable[[Plan], PeakReading | None]
) -> Plan:
    """Return the plan of a run's first batch, chosen as the engine has it chosen: by measuring plans beforehand."""
    automation.on_run_start(facts)
    plan, change = facts.plan, automation.begin(PeakReading(0, limit=limit, available=limit), MOST_PROBES)
    for left in reversed(range(MOST_PROBES)):
        if change is None:
            break
        plan = change.plan
        change = automation.on_probe(Probe(plan, measured(plan), limit, left))
    return plan if change is None else change.plan


def a_controller(axes: Sequence[Axis]) -> DynamicBatchSizeOptimizer:
    """Return one that is bounded by a run's axes alone."""
    bounds = {f"{end}_{axis.name}": getattr(axis, f"{end}imum") for axis in axes for end in ("min", "max")}
    return DynamicBatchSizeOptimizer(TARGET, MARGIN, **bounds)


# --- (a) simulated worlds


def in_worlds(number: int) -> dict[str, list[Jump]]:
    """Return the first jump, the corrected one, and the plan that probes lead to, of so many worlds."""
    found: dict[str, list[Jump]] = {"first jump": [], "after one correction": []}
    probed = [_probed(world) for world in worlds(FIRST_TEST_SEED, number)]
    for world in worlds(FIRST_TEST_SEED, number):
        cost = CostModel(fit_prior(world.traced(), world.window_px))
        plan, peak = _start(world), None
        for period, name in enumerate(found):
            plan = choose(_in_world(world, plan, cost, peak)).plan
            expected = cost.predict(shape_of(plan))
            peak = world.of(plan, period)
            found[name].append(
                Jump(
                    peak > TARGET * world.limit,
                    peak > world.limit,
                    peak / (TARGET * world.limit),
                    abs(expected / peak - 1),
                )
            )
            cost.observe(shape_of(plan), peak)
    return {**found, PROBED: probed}


def _probed(world: World) -> Jump:
    automation = a_controller(world.axes)
    automation.foresee((fit_prior(world.traced(), world.window_px), ALLOCATED))
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


def _in_world(world: World, plan: Plan, cost: CostModel, peak: int | None) -> Situation:
    return Situation(plan, world.limit, TARGET, MARGIN, world.axes, world.configured.batch_size, cost, peak)


# --- (b) the simulated allocator


class Traced:
    """A network that is traced under any plan, once each."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        options = {
            "name": "coverage",
            "scale": 2,
            "device": "cpu",
            "datasets": {"train": {"type": "GTImageDataset", "dataroot_gt": "nothing_is_read"}},
            "network_g": NETWORKS[name],
            "train": {
                "total_iter": 1,
                "losses": [{"type": "l1loss"}],
                "optim_g": {"type": "Adam", "lr": 1e-4},
                "ema_decay": 0.999,
            },
        }
        file = folder / f"{name}.yml"
        file.write_text(yaml.safe_dump(options))
        self._run = FakeRun.of(load_options(file))
        self._known: dict[Plan, Trace] = {}
        multiple = 8 if name in TRANSFORMERS else 2
        self.axes = (Axis("lq_size", "px", 32, 96, multiple), Axis("batch_size", "samples", 2, 32))
        self.window_px = multiple if name in TRANSFORMERS else 1

    def trace(self, plan: Plan) -> Trace:
        """Trace a plan, or return what is known of it."""
        if plan not in self._known:
            self._known[plan] = self._run.trace(plan)
        return self._known[plan]

    def priors(self) -> dict[str, Prior]:
        """Fit live and reserved bytes as a run does before its first step."""
        traces = {(plan.forward_batch_size, plan["lq_size"]): self.trace(plan) for plan in spread(self.axes)}
        priors = {"live": fit_prior({size: one.phase_peaks_bytes for size, one in traces.items()}, self.window_px)}
        for mode in ("native", "expandable"):
            peaks = {size: one.reserved_bytes(expandable=mode == "expandable") for size, one in traces.items()}
            priors[mode] = reserved_prior(priors["live"], peaks)
        return priors


@dataclass(frozen=True)
class Workspaces:
    """What kernels take for themselves, drawn once for a network; see the top of the file."""

    seed: int
    strength: float

    def added(self, trace: Trace, plan: Plan) -> Iterator[AllocationEvent]:
        """Yield the events of a step with its workspaces."""
        fresh = 1 + max((ident for ident, _ in (*trace.initial, *trace.events)), default=0)
        number = 0
        for event in trace.events:
            yield event
            if event.size_bytes < 64 * 1024:
                continue
            number += 1
            kept = Random(f"{self.seed} {number}")
            if kept.random() >= 0.25:
                continue
            anew = Random(f"{self.seed} {number} {plan}")
            share = anew.random() if anew.random() < 0.1 else kept.random()
            size = int(self.strength * share * trace.peak_bytes)
            if size:
                yield AllocationEvent(fresh, size)
                yield AllocationEvent(fresh, 0)
                fresh += 1


@dataclass(frozen=True)
class Needed:
    """What steps of a plan need: peaks of requested and of reserved bytes."""

    requested: int
    reserved: int


def needed(
    traced: Traced, workspaces: Workspaces, plans: Sequence[Plan], expandable: bool, limit: int | None
) -> Needed:
    """Play plans one after another, the cache emptied between them; return the peaks of the last.

    Raises:
        SimulatedOutOfMemory: they do not fit the limit.
    """
    allocator = CachingAllocator(expandable, limit)
    shift = 0
    for plan in plans:
        allocator.empty_cache()
        allocator.reset_peaks()
        trace = traced.trace(plan)
        step = list(workspaces.added(trace, plan))
        live: list[int] = []
        events = []
        for ident, size in repeated(step, STEPS, trace.initial):
            events.append(AllocationEvent(ident + shift, size))
            live.append(ident + shift)
        replay(events, allocator)
        left = _left_live(events)
        if plan != plans[-1]:  # weights stay, but the traces of another plan name them anew
            replay([AllocationEvent(ident, 0) for ident in left], allocator)
        shift += 1 + max(live)
    return Needed(allocator.peak_requested_bytes, allocator.peak_reserved_bytes)


def _left_live(events: Sequence[AllocationEvent]) -> list[int]:
    live: dict[int, None] = {}
    for ident, size in events:
        if size:
            live[ident] = None
        else:
            live.pop(ident, None)
    return list(live)


def in_allocator(traced: Traced, expandable: bool, jumps: int, seed: int) -> dict[str, list[Jump]]:
    """Return the first jumps and the corrected ones of a network under limits of all sizes."""
    mode = "expandable" if expandable else "native"
    random = Random(f"{seed} {traced.name} {mode}")
    priors = traced.priors()
    belief = RESERVED_EXPANDABLE if expandable else RESERVED_NATIVE
    lq, batch = traced.axes
    found: dict[str, list[Jump]] = {"first jump": [], "after one correction": [], PROBED: []}
    corners = [Plan.of(batch_size=a.minimum, lq_size=b.minimum) for a, b in [(batch, lq)]]
    corners.append(Plan.of(batch_size=batch.maximum, lq_size=lq.maximum))
    for _ in range(jumps):
        strength = 0.01 if traced.name in TRANSFORMERS else random.uniform(0, 0.25)
        workspaces = Workspaces(random.randrange(10**9), strength)
        low, high = (priors[mode].bytes(plan.batch_size, plan["lq_size"]) for plan in corners)
        limit = int(math.exp(random.uniform(math.log(max(SMALLEST_LIMIT, 1.3 * low)), math.log(0.9 * high))))
        allocated = CostModel(priors["live"], replace(ALLOCATED, constant_bytes=0.0))
        reserved = CostModel(priors[mode], belief)
        now = Situation(FIRST, limit, TARGET, MARGIN, traced.axes, 4, allocated, None, reserved, limit)
        plan = FIRST
        for name in ("first jump", "after one correction"):
            before, plan = plan, choose(now).plan
            expected = reserved.predict(shape_of(plan))
            fits = True
            try:
                needed(traced, workspaces, [before, plan], expandable, limit)
            except SimulatedOutOfMemory:
                fits = False
            # What it would take of a card without a limit: with one, the cache is emptied first.
            need = needed(traced, workspaces, [plan], expandable, None)
            found[name].append(
                Jump(
                    need.requested > TARGET * limit,
                    not fits,
                    max(need.requested / TARGET, need.reserved) / limit,
                    abs(expected / need.reserved - 1),
                )
            )
            allocated.observe(shape_of(plan), need.requested)
            reserved.observe(shape_of(plan), need.reserved)
            now = replace(now, plan=plan, peak_bytes=need.requested)
        found[PROBED].append(_probed_in_allocator(traced, workspaces, expandable, limit, (priors, belief)))
    return found


def _probed_in_allocator(
    traced: Traced, workspaces: Workspaces, expandable: bool, limit: int, known: tuple[dict[str, Prior], Belief]
) -> Jump:
    """Return what came of the plan that probes lead to; every probe leaves an empty cache."""
    priors, belief = known
    automation = a_controller(traced.axes)
    mode = "expandable" if expandable else "native"
    automation.foresee((priors["live"], replace(ALLOCATED, constant_bytes=0.0)), (priors[mode], belief))

    def measured(plan: Plan) -> PeakReading | None:
        try:
            need = needed(traced, workspaces, [plan], expandable, limit)
        except SimulatedOutOfMemory:
            return None
        return PeakReading(need.requested, reserved=need.reserved, limit=limit, available=limit)

    plan = first_batch(automation, RunFacts(traced.axes, FIRST), limit, measured)
    need = needed(traced, workspaces, [plan], expandable, None)
    expected = automation.expected_bytes(plan) or 0
    return Jump(
        need.requested > TARGET * limit,
        measured(plan) is None,
        max(need.requested / TARGET, need.reserved) / limit,
        abs(expected / need.requested - 1),
    )


# --- (c) real budgets


def in_cells(file: Path) -> dict[str, list[Jump]]:
    """Return the first jumps of autobatch's cells, and the plans they settled at."""
    found: dict[str, list[Jump]] = {PROBED: [], "settled": []}
    lines = file.read_text().splitlines() if file.exists() else []
    cells = {(one["method"], one["network"], one["budget_mib"], one["seed"]): one for one in map(json.loads, lines)}
    for one in cells.values():
        if not one["method"].startswith("jump") or one.get("failure"):
            continue
        limit = one["budget_mib"] * MIB
        if first := one.get("first_jump"):  # the plan of the first batch
            found[PROBED].append(_real(first["peaks"], limit, one["ooms"] > 0, first["expected"]))
        found["settled"].append(_real([one["largest_bytes"]], limit, one["ooms_after"] > 0, None))
    return found


def _real(peaks: Sequence[int], limit: int, failed: bool, expected: int | None) -> Jump:
    largest, typical = max(peaks), median(peaks)
    error = abs(expected / typical - 1) if expected else 0.0
    return Jump(largest > TARGET * limit, failed or largest > limit, largest / (TARGET * limit), error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=2000)
    parser.add_argument("--jumps", type=int, default=40, help="limits for each network and allocator mode")
    parser.add_argument("--seed", type=int, default=2, help="of networks' workspaces and limits")
    parser.add_argument("--cells", type=Path, default=ROOT / "build" / "autobatch.jsonl")
    parser.add_argument("--write", type=Path, help="folder for coverage.md and coverage.json")
    parser.add_argument("--machine", default="a virtual machine")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cast_as_cuda()
    group_as_cuda()
    found = {WORLDS: in_worlds(arguments.worlds)}
    with tempfile.TemporaryDirectory() as folder:
        for name in NETWORKS:
            traced = Traced(name, Path(folder))
            for expandable in (False, True):
                mode = "expandable" if expandable else "native"
                place = found.setdefault(f"simulated allocator, {mode}", {})
                for what, jumps in in_allocator(traced, expandable, arguments.jumps, arguments.seed).items():
                    place.setdefault(what, []).extend(jumps)
                print(f"{name}, {mode}: {len(place['first jump'])} jumps", flush=True)
    found["real budgets on the CPU"] = in_cells(arguments.cells)
    known = {
        "command": "python scripts/bench/jump_coverage.py --write docs/benchmarks",
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores of {arguments.machine}, Python {platform.python_version()}, "
        f"torch {torch.__version__}",
    }
    text = page(found, known)
    print(text)
    if arguments.write:
        (arguments.write / "coverage.md").write_text(text)
        counts = {
            place: {
                what: {
                    "jumps": len(jumps),
                    "above_target": sum(one.above for one in jumps),
                    "beyond_limit": sum(one.beyond for one in jumps),
                    "uses": [round(one.use, 4) for one in jumps],
                    "errors": [round(one.error, 5) for one in jumps],
                }
                for what, jumps in kinds.items()
            }
            for place, kinds in found.items()
        }
        (arguments.write / "coverage.json").write_text(json.dumps({**known, "found": counts}) + "\n")
    return 1 if any(one.beyond for kinds in found.values() for one in kinds[PROBED]) else 0


if __name__ == "__main__":
    sys.exit(main())
