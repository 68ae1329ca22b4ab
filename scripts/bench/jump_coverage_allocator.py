"""Jumps in the simulated allocator: see the top of ``jump_coverage.py``."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import yaml
from jump_coverage_table import PROBED, Jump

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.unit.worlds import MARGIN, TARGET  # noqa: E402
from trainauto.automations import DynamicBatchSizeOptimizer  # noqa: E402
from trainauto.control import planners  # noqa: E402
from trainauto.control.policy_input import PolicyInput  # noqa: E402
from trainauto.core.decisions import RunFacts  # noqa: E402
from trainauto.core.plan import Axis, Plan, shape_of  # noqa: E402
from trainauto.core.records import PeakReading, Probe  # noqa: E402
from trainauto.core.units import MIB  # noqa: E402
from trainauto.engine.probe import MOST_PROBES  # noqa: E402
from trainauto.forecast.traced_run import FakeRun  # noqa: E402
from trainauto.memory.cost.cost_model import CostModel  # noqa: E402
from trainauto.memory.cost.memory_forecast import spread  # noqa: E402
from trainauto.memory.cost.ratio_prior import ALLOCATED, BENCHMARKED, RESERVED, RatioPrior  # noqa: E402
from trainauto.memory.cost.traced_fit import Prior, allocator_prior, fit_prior  # noqa: E402
from trainauto.memory.cuda_allocator.allocator import (  # noqa: E402
    AllocationEvent,
    CachingAllocator,
    SimulatedOutOfMemoryError,
    replay,
)
from trainauto.memory.cuda_allocator.steps import repeated  # noqa: E402
from trainauto.memory.tracing.trace import Trace  # noqa: E402
from trainauto.options.load import load_options  # noqa: E402

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


class Traced:
    """A network that is traced under any plan as on a card, once each.

    Args:
        name: in :data:`NETWORKS`.
        benchmarked: cuDNN's benchmark mode is on.
        folder: for its option file.
    """

    def __init__(self, name: str, benchmarked: bool, folder: Path) -> None:
        self.name, self.benchmarked = name, benchmarked
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
        torch.backends.cudnn.benchmark = benchmarked
        self._run = FakeRun.of(load_options(file), like_cuda=True)
        self._known: dict[Plan, Trace] = {}
        multiple = 8 if name in TRANSFORMERS else 2
        self.axes = (Axis("lq_size", "px", 32, 96, multiple, power=2), Axis("batch_size", "samples", 2, 32))
        self.window_px = multiple if name in TRANSFORMERS else 1

    @property
    def belief(self) -> RatioPrior:
        """What a run believes of it."""
        return BENCHMARKED if self.benchmarked else ALLOCATED

    def trace(self, plan: Plan) -> Trace:
        """Trace a plan, or return what is known of it."""
        if plan not in self._known:
            self._known[plan] = self._run.trace(plan)
        return self._known[plan]

    def priors(self, expandable: bool) -> tuple[Prior, Prior]:
        """Fit peaks and the least reserved bytes as a run does before its first step."""
        traces = {(plan.forward_batch_size, plan["lq_size"]): self.trace(plan) for plan in spread(self.axes)}
        live = fit_prior({size: trace.phase_peaks_bytes for size, trace in traces.items()}, self.window_px)
        least = {size: trace.needed_bytes(expandable=expandable).least_bytes for size, trace in traces.items()}
        return live, allocator_prior(live, least)


@dataclass(frozen=True)
class Workspaces:
    """What kernels take that no trace knows, drawn once for a network; see the top of ``jump_coverage.py``.

    Attributes:
        seed: of which allocations come with one, and how large it is.
        share: the largest one, as a share of the step's peak.
        constant_bytes: the same in bytes.
    """

    seed: int
    share: float
    constant_bytes: float

    @classmethod
    def drawn(cls, random: Random, traced: Traced) -> "Workspaces":
        """Draw those of a network."""
        seed = random.randrange(10**9)
        if traced.name in TRANSFORMERS:
            return cls(seed, random.uniform(0.003, 0.02), 0.0)
        if traced.benchmarked:
            return cls(seed, 0.186 if random.random() < 1 / 88 else random.uniform(0, 0.038), 0.0)
        if random.random() < 23 / 29:
            return cls(seed, 0.0, random.uniform(0, 32 * MIB))
        return cls(seed, random.uniform(0, 0.079), 0.0)

    def added(self, trace: Trace, plan: Plan) -> Iterator[AllocationEvent]:
        """Yield the events of a step with its workspaces."""
        fresh = 1 + max((ident for ident, _ in (*trace.initial, *trace.events)), default=0)
        largest = self.share * trace.peak_bytes + self.constant_bytes
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
            size = int(largest * share)
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
        SimulatedOutOfMemoryError: they do not fit the limit.
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
    random = Random(f"{seed} {traced.name} {traced.benchmarked} {expandable}")
    live, least = traced.priors(expandable)
    lq, batch = traced.axes
    by_kind: dict[str, list[Jump]] = {"first jump": [], "after one correction": [], PROBED: []}
    corners = [Plan.of(batch_size=batch.minimum, lq_size=lq.minimum)]
    corners.append(Plan.of(batch_size=batch.maximum, lq_size=lq.maximum))
    for _ in range(jumps):
        workspaces = Workspaces.drawn(random, traced)
        low, high = (least.bytes(plan.batch_size, plan["lq_size"]) for plan in corners)
        limit = int(math.exp(random.uniform(math.log(max(SMALLEST_LIMIT, 1.3 * low)), math.log(0.9 * high))))
        jump = planners.Jump(CostModel(live, traced.belief), CostModel(least, RESERVED))
        plan, seen = FIRST, None
        for name in ("first jump", "after one correction"):
            before, plan = plan, jump.decide(_period(traced, plan, limit, seen)).plan
            expected = jump.cost.predict(shape_of(plan))
            seen = _taken(traced, workspaces, [before, plan], expandable, limit)
            # What it would take of a card without a limit, where this one is too small.
            need = seen or needed(traced, workspaces, [plan], expandable, None)
            by_kind[name].append(_jump(need.requested, limit, expected, beyond=seen is None))
            seen = need
        by_kind[PROBED].append(_probed(traced, workspaces, expandable, limit, (live, least)))
    return by_kind


def _period(traced: Traced, plan: Plan, limit: int, seen: Needed | None) -> PolicyInput:
    """Return what the controller is told of a period."""
    peak = seen.requested if seen else None
    known = {"reserved_bytes": seen.reserved if seen else None, "available_bytes": limit}
    return PolicyInput(
        plan=plan,
        peak_bytes=peak,
        typical_bytes=peak,
        limit_bytes=limit,
        target=TARGET,
        margin=MARGIN,
        axes=traced.axes,
        configured_batch=FIRST.batch_size,
        **known,
    )


def _taken(
    traced: Traced, workspaces: Workspaces, plans: Sequence[Plan], expandable: bool, limit: int
) -> Needed | None:
    try:
        return needed(traced, workspaces, plans, expandable, limit)
    except SimulatedOutOfMemoryError:
        return None


def _jump(peak: int, limit: int, expected: int, *, beyond: bool) -> Jump:
    return Jump(peak > TARGET * limit, beyond, peak / (TARGET * limit), abs(expected / peak - 1))


def _probed(traced: Traced, workspaces: Workspaces, expandable: bool, limit: int, priors: tuple[Prior, Prior]) -> Jump:
    """Return what came of the plan that probes lead to; every probe leaves an empty cache."""
    automation = a_controller(traced.axes)
    automation.controller.set_prior((priors[0], traced.belief), (priors[1], RESERVED))

    def measured(plan: Plan) -> PeakReading | None:
        need = _taken(traced, workspaces, [plan], expandable, limit)
        return need and PeakReading(need.requested, reserved=need.reserved, limit=limit, available=limit)

    plan = first_batch(automation, RunFacts(traced.axes, FIRST), limit, measured)
    need = needed(traced, workspaces, [plan], expandable, None)
    return _jump(need.requested, limit, automation.expected_bytes(plan) or 0, beyond=measured(plan) is None)
