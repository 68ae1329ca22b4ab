"""A few plans benchmarked on the device at hand, beside what was predicted of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import Any

from trainauto.control.jump_policy import frontier
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan, count_axis, plan_of, shape_of, size_axis, work
from trainauto.core.worker_process import WorkerDiedError, WorkerProcess
from trainauto.forecast.trace_process import TraceProcess
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.memory_forecast import MemoryForecast, forecast_memory
from trainauto.options.load import LoadedOptions

SERVER = "trainauto.forecast.benchmark_worker"
MOST_PLANS = 4
BUILD_TIMEOUT_S = 300.0
MOST_STEP_S = 30.0
"""Plans whose step would take longer are not tried."""
PLAN_TIMEOUT_S = 20 * MOST_STEP_S
MOST_SIZES = 8


@dataclass(frozen=True)
class PlanBenchmark:
    """A plan that was benchmarked.

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
class DeviceBenchmark:
    """The benchmarked plans of a device.

    Attributes:
        device: name of the device.
        limit_bytes: what a run may use there; ``None`` if unknown.
        plans: in the order of predicted bytes.
    """

    device: str
    limit_bytes: int | None
    plans: tuple[PlanBenchmark, ...] = field(default=())


def benchmark_plans(loaded: LoadedOptions, axes: Sequence[Axis], forecast: MemoryForecast) -> DeviceBenchmark:
    """Step for real under up to four plans that should fit here, from the smallest to the largest of them.

    Args:
        loaded: the option file of the run.
        axes: of the run, with their bounds.
        forecast: traces as on CUDA; on a CPU it is traced anew, as it is there.

    Raises:
        InputError: the run cannot be built here, or nothing fits.
        TraceError: it cannot be traced as on this device.
    """
    smallest = Plan.of(**{axis.name: axis.clamp(axis.minimum) for axis in axes})
    benchmarker = PlanBenchmarker(loaded, smallest)
    try:
        first = benchmarker.build()
        if first["kind"] == "cpu":
            with TraceProcess(loaded.path, loaded.overrides, segments=None) as tracer:
                forecast = forecast_memory(tracer, axes)
        cost = CostModel(*forecast.peaks_on(first["kind"]))
        plans = spread_plans(cost, axes, first["limit_bytes"])
        if not plans:
            raise InputError(f"not even {smallest} fits on {first['device']}, by what is predicted")
        return DeviceBenchmark(
            first["device"], first["limit_bytes"], tuple(_benchmark_all(benchmarker, cost, plans, axes))
        )
    finally:
        benchmarker.end()


def spread_plans(cost: CostModel, axes: Sequence[Axis], limit_bytes: int | None, most: int = MOST_PLANS) -> list[Plan]:
    """Return plans that should fit, evenly spread by the logarithm of their bytes; the smallest and the largest too.

    Args:
        cost: what plans need.
        axes: of the run, with their bounds.
        limit_bytes: what the upper quantile of a plan must not pass; ``None`` for no limit.
        most: number of plans.
    """
    count, size = count_axis(axes), size_axis(axes)
    low, high = (size.values[0], size.values[-1]) if size else (1, 1)
    sizes = {low + (high - low) * part // (MOST_SIZES - 1) for part in range(MOST_SIZES)}
    sizes = {size.clamp(value) for value in sizes} if size else sizes
    batches = {count.clamp(min(count.maximum, count.minimum * 2**power)) for power in range(12)} if count else {1}
    plans = [plan_of(axes, samples, value) for samples in batches for value in sizes]
    if limit_bytes is not None:
        plans = [plan for plan in plans if cost.predict(shape_of(plan), UPPER) <= limit_bytes]
        plans += frontier(cost, axes, limit_bytes)
    if not plans:
        return []
    needs = {plan: cost.predict(shape_of(plan)) for plan in plans}
    least, largest = log(min(needs.values())), log(max(needs.values()))
    chosen: list[Plan] = []
    for part in range(most):
        wanted = exp(least + (largest - least) * part / max(1, most - 1))
        left = [plan for plan in plans if plan not in chosen]
        if left:
            # Of plans that need as much, the one of the larger size.
            chosen.append(min(left, key=lambda plan: (round(abs(log(needs[plan] / wanted)), 2), -plan.size)))
    return sorted(chosen, key=lambda plan: (needs[plan], plan.size))


class PlanBenchmarker:
    """The process that benchmarks plans; a new one follows one that died."""

    def __init__(self, loaded: LoadedOptions, smallest: Plan) -> None:
        options = str(loaded.path.resolve())
        self._request = {"options": options, "overrides": list(loaded.overrides), "smallest": smallest.to_dict()}
        self._worker = WorkerProcess(SERVER)
        self._is_gone = False

    def build(self) -> dict[str, Any]:
        """Build the run there, and return what is said of the device."""
        try:
            answer = self._worker.request(self._request, BUILD_TIMEOUT_S)
        except WorkerDiedError as error:
            raise InputError(f"the process that benchmarks plans {error}") from None
        if "cannot" in answer:
            raise InputError(str(answer["cannot"]))
        return answer

    def measure(self, plan: Plan) -> dict[str, Any]:
        """Return what a plan took, or why it failed."""
        if self._is_gone:
            self._worker, self._is_gone = WorkerProcess(SERVER), False
            self.build()
        try:
            answer = self._worker.request({"plan": plan.to_dict()}, PLAN_TIMEOUT_S)
        except WorkerDiedError as error:
            self._worker.end()
            self._is_gone = True
            return {"failed": f"the process that tried it {error}"}
        return {"failed": answer["cannot"]} if "cannot" in answer else answer

    def end(self) -> None:
        """End the process."""
        if not self._is_gone:
            self._worker.end()


def _benchmark_all(
    benchmarker: PlanBenchmarker, cost: CostModel, plans: Sequence[Plan], axes: Sequence[Axis]
) -> list[PlanBenchmark]:
    benchmarks: list[PlanBenchmark] = []
    for plan in plans:
        shape = shape_of(plan)
        benchmark = PlanBenchmark(plan, cost.predict(shape), cost.predict(shape, UPPER))
        seconds = expected_seconds(plan, benchmarks, axes)
        if seconds > MOST_STEP_S:
            benchmarks.append(replace(benchmark, failed=f"not tried, a step would take {seconds:.0f} s"))
            continue
        reading = benchmarker.measure(plan)
        if "failed" in reading:
            benchmarks.append(replace(benchmark, failed=str(reading["failed"])))
        else:
            benchmarks.append(replace(benchmark, measured_bytes=reading["measured_bytes"], seconds=reading["seconds"]))
    return benchmarks


def expected_seconds(plan: Plan, benchmarks: Sequence[PlanBenchmark], axes: Sequence[Axis]) -> float:
    """Return how long a step should take: by the line through the two largest benchmarks; 0 before there are two.

    A small plan's time is mostly what every step takes: one alone tells nothing.
    """

    def whole(plan: Plan) -> int:
        return work(plan.with_micro_batches(1), axes)  # of the step, not of its largest forward pass

    times = sorted((whole(benchmark.plan), benchmark.seconds) for benchmark in benchmarks if not benchmark.failed)
    known = times[-2:]
    if len(known) < 2 or known[0][0] == known[1][0]:
        return 0.0
    (fewer, shorter), (more, longer) = known
    return longer + max(0.0, longer - shorter) / (more - fewer) * (whole(plan) - more)
