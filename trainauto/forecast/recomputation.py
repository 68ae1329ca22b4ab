"""``gradient_checkpointing: auto``: as few blocks run again as let the file's plan fit, known before the run.

Blocks are taken in the order of the bytes that they keep for the backward pass by what they compute, the most first;
among equal ones the first of the network, whose turn in the backward pass comes last, when the others' activations are
gone. How many of them suffice is bisected, each trial traced with exactly those.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainauto.control.controller import controllers_of
from trainauto.core.automation import Automation
from trainauto.core.plan import Plan, shape_of
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.core.worker_process import WorkerProcess
from trainauto.forecast.plan_memory import Likely, likely
from trainauto.forecast.trace_process import ONE_BY_ONE, TraceProcess
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.memory_forecast import MemoryForecast, PlanBytes, lacks_room
from trainauto.memory.cost.ratio_prior import OF_REQUESTED, ON_CARD, reserved_belief
from trainauto.memory.cuda_allocator.segments import Segments
from trainauto.memory.tracing.holders import ModuleWork
from trainauto.memory.tracing.trace import TraceError
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions

logger = logging.getLogger(__name__)

KEY = "memory:gradient_checkpointing"


def recomputing(parts: Sequence[str] | bool) -> str:
    """Return the item of ``--force_yml`` that has these blocks run again."""
    return f"{KEY}={json.dumps(parts if isinstance(parts, bool) else list(parts))}"


@dataclass(frozen=True)
class Bounds:
    """What a step may take.

    Attributes:
        device_type: where it runs.
        target_bytes: what its peak stays within with 99 % probability.
        available_bytes: the same of what the allocator reserves; ``None`` without a card.
    """

    device_type: str
    target_bytes: float
    available_bytes: int | None

    def admits(self, plan: Plan, taken: PlanBytes) -> bool:
        """Say whether the plan fits, by a trace of it."""
        forecast = MemoryForecast.of({(plan.forward_batch_size, plan.size): taken}, 1, taken.seconds)
        bounds = [(forecast.peaks_on(self.device_type), self.target_bytes)]
        if self.available_bytes is not None and (reserved := forecast.least_reserved()) is not None:
            bounds.append((reserved, self.available_bytes))
        shape = shape_of(plan)
        return all(CostModel(*belief).predict(shape, UPPER) <= most for belief, most in bounds)


def step_bounds(automations: Iterable[Automation], device_type: str, limit_bytes: int | None) -> Bounds | None:
    """Return what a step of a run may take; ``None`` without a memory limit.

    Args:
        automations: of the run: a controller among them has a target.
        device_type: where it trains.
        limit_bytes: what it may use there.
    """
    if limit_bytes is None:
        return None
    controller = next(iter(controllers_of(automations)), None)
    target = controller.settings.target_vram_usage if controller is not None else 1.0
    return Bounds(device_type, target * limit_bytes, None if device_type == "cpu" else limit_bytes)


@dataclass(frozen=True)
class Recomputation:
    """Which blocks run again.

    Attributes:
        parts: their names, in the order in which they were taken.
        of: how many there are.
        share: of the forward pass's multiplications that they compute once more.
        fits: the plan does, so.
    """

    parts: tuple[str, ...]
    of: int
    share: float
    fits: bool

    def __str__(self) -> str:
        if not self.parts:
            return "no block runs again" if self.fits else "no block can run again"
        return (
            f"{len(self.parts)} of {counted(self.of, 'block')} run again, {self.share:.0%} of the forward pass"
            f"{'' if self.fits else ', and the plan is not expected to fit even so'}"
        )


ALIKE = 0.8
"""Blocks of a class differ by an activation or two that a neighbour makes: above this share they are worth as much."""


def by_worth(work: Mapping[str, ModuleWork]) -> list[str]:
    """Return parts in the order in which they are to run again: most bytes by computation first, else as they stand."""
    worth = {name: one.kept_bytes / max(1, one.multiplications) for name, one in work.items()}
    ordered: list[str] = []
    while rest := [name for name in work if name not in ordered]:
        most = max(worth[name] for name in rest)
        ordered += [name for name in rest if worth[name] >= ALIKE * most]
    return ordered


def choose_parts(tracer: TraceProcess, plan: Plan, bounds: Bounds) -> Recomputation:
    """Return as few blocks as let a plan fit; all of them where none let it.

    Args:
        tracer: of the run; its option file says ``auto``, which traces as if nothing ran again.
        plan: of the option file.
        bounds: what it may take.

    Raises:
        TraceError: the model cannot be traced.
    """
    plain = tracer.trace(plan)
    alone = MemoryForecast.of({(plan.forward_batch_size, plan.size): plain}, 1, plain.seconds)
    if lacks_room(alone, bounds.device_type, bounds.target_bytes):  # which no block that runs again would help
        tracer.knows(ONE_BY_ONE)
        plain = tracer.trace(plan)
    if bounds.admits(plan, plain):
        return Recomputation((), 0, 0.0, fits=True)
    work, forward_multiplications = tracer.work_of_parts(plan)
    ordered = by_worth(work)

    def fits(count: int) -> bool:
        return bounds.admits(plan, tracer.trace(plan, [recomputing(ordered[:count])]))

    count, possible = _fewest(len(ordered), fits)
    computed = sum(work[name].multiplications for name in ordered[:count])
    share = computed / max(1, forward_multiplications)
    return Recomputation(tuple(ordered[:count]), len(ordered), share, possible)


def _fewest(most: int, fits: Callable[[int], bool]) -> tuple[int, bool]:
    """Return the fewest of ``1`` to ``most`` that fit, by bisection, and whether any do."""
    if not fits(most):
        return most, False
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high, True


def recomputed_blocks(
    loaded: LoadedOptions[FileOptions],
    plan: Plan,
    bounds: Bounds | None,
    *,
    segments: Segments | None,
    world_size: int = 1,
    worker: WorkerProcess | None = None,
    known: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Return which blocks of a new run are to run again, and log why.

    Args:
        loaded: its options, which say ``auto``.
        plan: of the option file.
        bounds: what a step may take; ``None`` without a memory limit.
        segments: of the allocator; ``None`` without a card.
        world_size: how many processes train it together.
        worker: a process that traces, started before.
        known: what that cannot know by the option file alone.
    """
    if bounds is None:
        logger.warning("gradient checkpointing: auto: nothing bounds memory here, so no block runs again")
        return ()
    try:
        with TraceProcess(
            loaded.path, loaded.overrides, segments=segments, world_size=world_size, worker=worker, known=known
        ) as tracer:
            chosen = choose_parts(tracer, plan, bounds)
    except TraceError as error:
        logger.warning("gradient checkpointing: auto: the step cannot be traced (%s), so no block runs again", error)
        return ()
    (logger.info if chosen.fits else logger.warning)(
        "gradient checkpointing: auto: %s; %s, within %s with 99 %% probability%s",
        chosen,
        plan,
        size_text(int(bounds.target_bytes)),
        f": {', '.join(chosen.parts)}" if chosen.parts else "",
    )
    return chosen.parts


@dataclass(frozen=True)
class Recomputed:
    """What a plan takes while so many blocks run again.

    Attributes:
        blocks: how many.
        taken: by its step.
        fits: by card: with 99 % probability; ``None`` where it is expected to, and less probable than that.
        allocated: expected, and with 99 % probability.
    """

    blocks: int
    taken: PlanBytes
    allocated: Likely
    fits: Mapping[str, bool | None]


@dataclass(frozen=True)
class Recomputations:
    """Bytes against computation, of one plan.

    Attributes:
        name: of the run.
        plan: of its option file.
        of: blocks that can run again.
        rows: by number of blocks, none first.
    """

    name: str
    plan: Plan
    of: int
    rows: tuple[Recomputed, ...]


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of all blocks: those whose bytes and computation are compared."""


def plan_recomputations(
    loaded: LoadedOptions[FileOptions], plan: Plan, available_bytes: Mapping[str, int], tracer: TraceProcess
) -> Recomputations:
    """Trace a plan with more and more of the blocks that ``auto`` would take.

    Args:
        loaded: the option file; what it says of gradient checkpointing is left aside.
        plan: of its step.
        available_bytes: what the allocator may take, by card.
        tracer: of the run.

    Raises:
        TraceError: the model cannot be traced, or no block can run again.
    """
    work, _ = tracer.work_of_parts(plan)
    ordered = by_worth(work)
    rows = []
    for count in dict.fromkeys(round(share * len(ordered)) for share in SHARES):
        taken = tracer.trace(plan, [recomputing(ordered[:count])])
        blocks = None if taken.kernels in OF_REQUESTED else taken.allocated_bytes
        allocated = likely(blocks or taken.peak_bytes, ON_CARD[taken.kernels])
        reserved = likely(taken.reserved_bytes or taken.peak_bytes, reserved_belief(taken.kernels))
        fits = {
            card: True if reserved.most_bytes <= most else None if reserved.expected_bytes <= most else False
            for card, most in available_bytes.items()
        }
        rows.append(Recomputed(count, taken, allocated, fits))
    return Recomputations(loaded.options.name, plan, len(ordered), tuple(rows))
