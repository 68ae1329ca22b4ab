"""A few plans tried for real on the device at hand, beside what was predicted of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import Any

from trainauto.control.jump_policy import frontier
from trainauto.core.errors import InputError
from trainauto.core.plan import BATCH_SIZE, LQ_SIZE, Axis, Plan
from trainauto.core.worker_process import WorkerDiedError, WorkerProcess
from trainauto.forecast.memory_forecast import MemoryForecast, foresee
from trainauto.forecast.trace_process import TraceProcess
from trainauto.memory.cost.cost_model import UPPER, CostModel, shape_of
from trainauto.options.load import LoadedOptions

SERVER = "trainauto.forecast.benchmark_worker"
MOST_PLANS = 4
BUILD_TIMEOUT_S = 300.0
MOST_STEP_S = 30.0
"""Plans whose step would take longer are not tried."""
PLAN_TIMEOUT_S = 20 * MOST_STEP_S
MOST_CROPS = 8


@dataclass(frozen=True)
class Trial:
    """A plan that was tried.

    Attributes:
        plan: which.
        predicted_bytes: its expected peak, counted as the device counts.
        upper_bytes: what it stays within with 99 % probability.
        measured_bytes: largest peak of some steps; 0 where it failed.
        seconds: median time of a step; 0 where it failed.
        failed: why there are no figures; empty where there are.
    """

    plan: Plan
    predicted_bytes: int
    upper_bytes: int
    measured_bytes: int = 0
    seconds: float = 0.0
    failed: str = ""

    @property
    def error(self) -> float:
        """How far the prediction was off, relative to what was measured."""
        return self.predicted_bytes / self.measured_bytes - 1 if self.measured_bytes else 0.0


@dataclass(frozen=True)
class Trials:
    """What was tried where.

    Attributes:
        device: name of the device.
        limit_bytes: what a run may use there; ``None`` where nobody says.
        trials: in the order of predicted bytes.
    """

    device: str
    limit_bytes: int | None
    trials: tuple[Trial, ...] = field(default=())


def benchmark_plans(loaded: LoadedOptions, axes: Sequence[Axis], foresight: MemoryForecast) -> Trials:
    """Step for real under up to four plans that should fit here, from the smallest to the largest of them.

    Args:
        loaded: the option file of the run.
        axes: crop and batch with their bounds.
        foresight: traces as on CUDA; on a CPU it is traced anew, as it is there.

    Raises:
        InputError: the run cannot be built here, or nothing fits.
        TraceError: it cannot be traced as on this device.
    """
    smallest = Plan.of(**{axis.name: axis.clamp(axis.minimum) for axis in axes})
    child = PlanBenchmarker(loaded, smallest)
    try:
        first = child.build()
        if first["kind"] == "cpu":
            with TraceProcess(loaded.path, loaded.overrides, segments=None) as tracer:
                foresight = foresee(tracer, axes)
        cost = CostModel(*foresight.peaks_on(first["kind"]))
        plans = spread_plans(cost, axes, first["limit_bytes"])
        if not plans:
            raise InputError(f"not even {smallest} fits on {first['device']}, by what is predicted")
        return Trials(first["device"], first["limit_bytes"], tuple(_try_all(child, cost, plans)))
    finally:
        child.end()


def spread_plans(cost: CostModel, axes: Sequence[Axis], limit_bytes: int | None, most: int = MOST_PLANS) -> list[Plan]:
    """Return plans that should fit, evenly spread by the logarithm of their bytes; the smallest and the largest too.

    Args:
        cost: what plans need.
        axes: crop and batch with their bounds.
        limit_bytes: what the upper quantile of a plan must not pass; ``None`` for no limit.
        most: number of plans.
    """
    by_name = {axis.name: axis for axis in axes}
    crop, batch = by_name[LQ_SIZE], by_name[BATCH_SIZE]
    low, high = crop.clamp(crop.minimum), crop.clamp(crop.maximum)
    crops = {crop.clamp(low + (high - low) * part // (MOST_CROPS - 1)) for part in range(MOST_CROPS)}
    batches = {batch.clamp(min(batch.maximum, batch.minimum * 2**power)) for power in range(12)}
    found = [Plan.of(batch_size=samples, lq_size=side) for samples in batches for side in crops]
    if limit_bytes is not None:
        found = [plan for plan in found if cost.predict(shape_of(plan), UPPER) <= limit_bytes]
        found += frontier(cost, axes, limit_bytes)
    if not found:
        return []
    needs = {plan: cost.predict(shape_of(plan)) for plan in found}
    least, largest = log(min(needs.values())), log(max(needs.values()))
    chosen: list[Plan] = []
    for part in range(most):
        wanted = exp(least + (largest - least) * part / max(1, most - 1))
        left = [plan for plan in found if plan not in chosen]
        if left:
            # Of plans that need as much, the one with the larger crop.
            chosen.append(min(left, key=lambda plan: (round(abs(log(needs[plan] / wanted)), 2), -plan[LQ_SIZE])))
    return sorted(chosen, key=lambda plan: (needs[plan], plan[LQ_SIZE]))


class PlanBenchmarker:
    """The process that tries plans; a new one follows one that died."""

    def __init__(self, loaded: LoadedOptions, smallest: Plan) -> None:
        options = str(loaded.path.resolve())
        self._request = {"options": options, "overrides": list(loaded.overrides), "smallest": smallest.to_dict()}
        self._child = WorkerProcess(SERVER)
        self._is_gone = False

    def build(self) -> dict[str, Any]:
        """Build the run there, and return what is said of the device."""
        try:
            answer = self._child.ask(self._request, BUILD_TIMEOUT_S)
        except WorkerDiedError as error:
            raise InputError(f"the process that tries plans {error}") from None
        if "cannot" in answer:
            raise InputError(str(answer["cannot"]))
        return answer

    def measure(self, plan: Plan) -> dict[str, Any]:
        """Return what a plan took, or why it failed."""
        if self._is_gone:
            self._child, self._is_gone = WorkerProcess(SERVER), False
            self.build()
        try:
            answer = self._child.ask({"plan": plan.to_dict()}, PLAN_TIMEOUT_S)
        except WorkerDiedError as error:
            self._child.end()
            self._is_gone = True
            return {"failed": f"the process that tried it {error}"}
        return {"failed": answer["cannot"]} if "cannot" in answer else answer

    def end(self) -> None:
        """End the process."""
        if not self._is_gone:
            self._child.end()


def _try_all(child: PlanBenchmarker, cost: CostModel, plans: Sequence[Plan]) -> list[Trial]:
    trials: list[Trial] = []
    for plan in plans:
        shape = shape_of(plan)
        trial = Trial(plan, cost.predict(shape), cost.predict(shape, UPPER))
        seconds = expected_seconds(plan, trials)
        if seconds > MOST_STEP_S:
            trials.append(replace(trial, failed=f"not tried, a step would take {seconds:.0f} s"))
            continue
        found = child.measure(plan)
        if "failed" in found:
            trials.append(replace(trial, failed=str(found["failed"])))
        else:
            trials.append(replace(trial, measured_bytes=found["measured_bytes"], seconds=found["seconds"]))
    return trials


def expected_seconds(plan: Plan, trials: Sequence[Trial]) -> float:
    """Return how long a step should take: by the line through the two largest that were tried; 0 before there are two.

    A small plan's time is mostly what every step takes: one alone tells nothing.
    """
    known = sorted((_pixels(one.plan), one.seconds) for one in trials if not one.failed)[-2:]
    if len(known) < 2 or known[0][0] == known[1][0]:
        return 0.0
    (fewer, shorter), (more, longer) = known
    return longer + max(0.0, longer - shorter) / (more - fewer) * (_pixels(plan) - more)


def _pixels(plan: Plan) -> int:
    return plan.batch_size * plan[LQ_SIZE] ** 2
