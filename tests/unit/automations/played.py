"""A run whose memory is known, played step by step against the real controller, as the engine does it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.core.decisions import Decision, PlanChange, RunFacts
from trainauto.core.plan import Axis, BatchShape, Plan
from trainauto.core.records import OutOfMemory, PeakReading, Probe, StepRecord
from trainauto.memory.cost.ratio_prior import ALLOCATED, RESERVED
from trainauto.memory.cost.traced_fit import Prior, fit_prior

LIMIT = 12 * 2**30
AXES = (Axis("lq_size", "px", 8, 512, 1, power=2), Axis("batch_size", "samples", 1, 128))
START = Plan.of(batch_size=8, lq_size=64)
LOOKAHEAD = 8
GRID = [(2, 32), (2, 128), (16, 32), (16, 128), (2, 256), (64, 64)]


def need(plan: Plan) -> int:
    """Bytes of a step: weights and optimizer, and 100 KiB a low-quality pixel."""
    return int(400 * 2**20 + 100 * 2**10 * plan.forward_batch_size * plan["lq_size"] ** 2)


def traced(more: float = 1.0) -> Prior:
    return fit_prior({(b, x): {"step": more * need(Plan.of(batch_size=b, lq_size=x))} for b, x in GRID})


def controller(policy: str, **arguments: Any) -> DynamicBatchSizeOptimizer:
    """Return one with the documents' defaults; what kernels need beyond the trace is 3 %."""
    one = DynamicBatchSizeOptimizer(policy=policy, **arguments)  # type: ignore[arg-type]
    one.controller.set_prior((traced(1 / 1.03), ALLOCATED), (traced(1.02), RESERVED))
    return one


Spike = Callable[[int], float]
Neighbour = Callable[[int], int]


def never(step: int) -> float:
    return 1.0


def nobody(step: int) -> int:
    return 0


class PlayedRun:
    """Steps of a run: larger plans act after a lookahead, what exceeds memory runs out of it and then in pieces.

    Args:
        automation: steers it.
        spike: factor on the peak of each step.
        neighbour: bytes that another process holds at each step.
        start: the option file's plan.
    """

    def __init__(
        self,
        automation: DynamicBatchSizeOptimizer,
        spike: Spike = never,
        neighbour: Neighbour = nobody,
        start: Plan = START,
    ) -> None:
        self.automation, self.spike, self.neighbour = automation, spike, neighbour
        self.plan, self.step = start, 0
        self.coming: list[tuple[int, Plan]] = []
        self.decisions: list[tuple[int, Decision]] = []
        self.uses: list[float] = []
        self.ooms: list[int] = []
        automation.check(self.facts)
        automation.on_run_start(self.facts)
        change = automation.begin(self.reading(0), 4)
        for left in (3, 2, 1, 0):
            if change is None:
                break
            self.plan = change.plan
            peak = self.reading(need(self.plan))
            change = automation.on_probe(Probe(self.plan, peak if peak.allocated <= LIMIT else None, LIMIT, left))
        self.plan = change.plan if change else self.plan
        self.first = self.plan

    @property
    def facts(self) -> RunFacts:
        return RunFacts(AXES, self.plan)

    @property
    def changes(self) -> list[tuple[int, PlanChange]]:
        return [(step, one) for step, one in self.decisions if isinstance(one, PlanChange)]

    @property
    def mean_use(self) -> float:
        """Mean over all steps of what their plans need by themselves, as a share of the limit."""
        return sum(self.uses) / len(self.uses)

    def reading(self, peak: int) -> PeakReading:
        free = LIMIT - self.neighbour(self.step)
        return PeakReading(peak, reserved=int(1.02 * peak), limit=LIMIT, available=free, current=peak // 10)

    def seconds(self) -> float:
        """Return what a step takes; 0 where speed is nobody's business."""
        return 0.0

    def compile_seconds(self) -> float:
        """Return what of that torch.compile takes."""
        return 0.0

    def run(self, steps: int) -> "PlayedRun":
        for _ in range(steps):
            self.one_step()
        return self

    def one_step(self) -> None:
        self.step += 1
        while self.coming and self.coming[0][0] <= self.step:
            self.plan = self.coming.pop(0)[1]
        plan, peak = self.plan, int(need(self.plan) * self.spike(self.step))
        ooms = int(peak > LIMIT - self.neighbour(self.step))
        shape = BatchShape(plan.batch_size, plan["lq_size"])
        if ooms:
            self.ooms.append(self.step)
            event = OutOfMemory(self.step, plan, shape, "g", "no memory", 2, LIMIT)
            self.apply(self.automation.on_out_of_memory(event))
        reading = self.reading(min(peak, LIMIT - self.neighbour(self.step)))
        pixels, compile_s = plan.batch_size * plan["lq_size"] ** 2, self.compile_seconds()
        seconds = self.seconds() + compile_s
        record = StepRecord(self.step, plan, plan, shape, 0, {}, {}, {}, 0, seconds, pixels, peak=reading, ooms=ooms)
        record = replace(record, compile_seconds=compile_s)
        self.uses.append(need(plan) / LIMIT)
        self.apply(self.automation.on_step_end(record))

    def apply(self, decision: Decision | None) -> None:
        if decision is None:
            return
        self.decisions.append((self.step, decision))
        if isinstance(decision, PlanChange) and decision.plan != self.plan:
            smaller = decision.plan.capped_by(self.plan) == decision.plan
            self.coming = [*self.coming, (self.step + (1 if smaller else LOOKAHEAD + 1), decision.plan)]
