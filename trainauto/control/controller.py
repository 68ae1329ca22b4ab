"""The mechanism of the controller: steps in, decisions out. Pure: no torch, no clock, no loader, no device."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainauto.control.bounds import Bounds
from trainauto.control.compile_cost import CompileCost
from trainauto.control.control_settings import ControlSettings
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.control.failure_memory import FailureMemory, without_small_spikes
from trainauto.control.noise import Noise
from trainauto.control.period_stats import PeriodStats
from trainauto.control.planners import EARLY_STEPS, Jump, Planner, SmallSteps
from trainauto.control.policy_input import PolicyInput
from trainauto.control.step_policy import PolicyDecision, shrunk_after_oom
from trainauto.control.vram_statistics import VramStatistics
from trainauto.control.worth_search import WorthSearch
from trainauto.core.automation import Automation
from trainauto.core.decisions import RunFacts
from trainauto.core.noise_scale import NoiseSample
from trainauto.core.plan import Axis, Plan, count_axis, shape_of, size_axis, work
from trainauto.core.records import PeakReading, Probe
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.ratio_prior import RatioPrior
from trainauto.memory.cost.traced_fit import Prior

logger = logging.getLogger(__name__)

STATUS_EVERY = 50
MORE_MEMORY = 1.02
"""Ratio of limits from which a resumed run has another card or budget: readings of one card are the same."""

NO_SPEEDS: Mapping[str, Any] = {"speeds": None}
_FIGURES = re.compile(r"[\d.]+")


class Controller:
    """Chooses the plans of a run by its memory: before its first step, after steps, and after failures.

    When it acts:

    - ``policy: jump`` with a traced model chooses the plan of the first batch, measures it before it is trained, and
      may correct it once after three steps. Afterwards it decides after whole periods of
      ``adjustment_frequency`` steps under one plan.
    - ``policy: step``, ``warmup_period``, a model that cannot be traced, and loops of one's own: nothing is decided
      before a whole first period is complete.

    Failures are remembered in :class:`~trainauto.control.failure_memory.FailureMemory`; nothing is blocked for ever.

    Args:
        name: of the automation, for log lines.
        settings: what it goes by.
        bounds: smallest and largest values, by axis.
        effective: samples that every optimizer step is to hold, where the options say.

    Attributes:
        bounds: as given; what is asked for may narrow them.
        axes: of the run, within the bounds.
        plan: the plan of now, as the controller reasons about plans; ``None`` before the run begins.
        configured_batch: samples of the largest forward pass that the run was started with.
        statistics: figures over the whole run.
        kind: of the run whose plans were measured: of another one, what was measured is dropped.
        noise: of the gradient, where the objective asks what samples are worth.
    """

    def __init__(self, name: str, settings: ControlSettings, bounds: Bounds, effective: EffectiveBatch) -> None:
        self.name = name
        self.settings = settings
        self.effective = effective
        self.bounds = bounds
        self.run_axes: tuple[Axis, ...] = ()
        self.axes = bounds.clip(())
        # Plans are those that EffectiveBatch gives a controller; the run's own are made of them where they leave here.
        self.plan: Plan | None = None
        self.configured_batch: int | None = None
        self.statistics = VramStatistics(name, settings.vram_history_size)
        self.kind = ""
        self.noise = Noise() if settings.objective == "goodput" else None
        self._first: Plan | None = None
        self._seen = PeriodStats()
        self._iteration = self._cooldown = 0
        self._planner = self._new_planner()
        self._failures = FailureMemory(settings.adjustment_frequency, self.work)
        self._last_sentence = ""
        self._settled: dict[str, Any] | None = None
        self._is_invalidated = False
        self._limit_bytes: int | None = None
        self._compile_cost = CompileCost()

    def work(self, plan: Plan) -> int:
        """Return what activations grow with under a plan."""
        return work(plan, self.axes)

    def _new_planner(self) -> Planner:
        if self.settings.policy == "step":
            return self._for_objective(SmallSteps(self.work, self.effective))
        return self._for_objective(Jump(CostModel(None, power=self._power)))

    @property
    def _power(self) -> int:
        return size.power if (size := size_axis(self.axes)) else 1

    def take_axes(self, axes: tuple[Axis, ...]) -> None:
        """Take up the axes of the run, within the bounds."""
        power = self._power
        self.run_axes, self.axes = axes, self.bounded(axes)
        if self._power != power:
            self._planner = self._new_planner()  # what is known was counted in other units

    def _for_objective(self, memory: Planner) -> Planner:
        if self.settings.objective == "memory":
            return memory
        return WorthSearch(memory, self.effective, lambda: self._first, self.noise)

    def measures_noise(self, step: int) -> bool:
        """Say whether the noise of the gradient is to be measured in a step."""
        return self.noise is not None and self.noise.is_due(step)

    def see_noise(self, samples: Mapping[str, NoiseSample], rate: float, batch: int, units_per_s: float | None) -> None:
        """Take in what a step says of the gradient's noise.

        Args:
            samples: by optimizer; none of most steps.
            rate: the step's learning rate.
            batch: what it held.
            units_per_s: how fast it was, where its batch was divided for that alone.
        """
        if self.noise is None:
            return
        self.noise.see_rate(rate, batch)
        if samples and not self.noise.is_frozen:
            usual = self._seen.typical_units_per_s
            self.noise.see(samples, usual / units_per_s - 1 if usual and units_per_s else None)

    def invalidate(self) -> None:
        """Steer by what is measured from now on; plans that ran out of memory may be tried again."""
        self._planner, self._is_invalidated = self._new_planner(), True
        self._failures.clear()
        self._cooldown = 0

    def after_step(
        self,
        plan: Plan,
        reading: PeakReading,
        *,
        is_whole: bool,
        fills_plan: bool = True,
        units_per_s: float | None = None,
        compile_s: float = 0.0,
        step_s: float = 0.0,
    ) -> PolicyDecision | None:
        """Take in a step; return a decision only if it asks for another plan.

        Args:
            plan: it was trained under, as the controller reasons about plans.
            reading: of the step; it counts in the statistics whatever the step was.
            is_whole: it trained what the plan of now says, without running out of memory.
            fills_plan: its samples were as large as the plan allows; short rows tell little of what long ones take.
            units_per_s: how fast it was.
            compile_s: seconds of it that ``torch.compile`` took.
            step_s: seconds of the rest of it.
        """
        self.statistics.see(reading)
        self._compile_cost.see(compile_s, step_s)
        self._iteration += 1
        self._cooldown = max(0, self._cooldown - 1)
        self._failures.step(plan if is_whole else None)
        self._see_limit(reading.limit)
        if self.plan is None:
            return None
        if is_whole:
            expected_bytes = None if fills_plan else self.expected_of(plan)
            self._seen.add(reading, units_per_s, fills_plan=fills_plan, expected_bytes=expected_bytes)
        if self._iteration % STATUS_EVERY == 0:
            self.statistics.log_status(self._seen.peaks, self.settings.target_vram_usage)
        decision = self._decide_if_due(reading, is_whole=is_whole)
        if decision is None or decision.plan == self.plan:
            return None
        self.statistics.note_change(self._iteration, self.plan, decision.plan, decision.reason)
        self._settled = None
        return decision

    def after_failure(self, failed: Plan, limit_bytes: int | None, *, recovered: bool) -> tuple[bool, str]:
        """Take in that a step ran out of memory; return whether its plan is to shrink, and by which rule."""
        self.statistics.oom_count += 1
        has_fitted = self._planner.is_measured(failed)
        answer = self._failures.out_of_memory(failed, has_fitted=has_fitted, recovered=recovered)
        if answer.shrinks:
            self._cooldown = 2 * self.settings.adjustment_frequency
            if not has_fitted:
                self._planner.mark_failed(failed, limit_bytes)
        return answer.shrinks, answer.rule

    def shrunk(self, failed: Plan) -> Plan:
        """Return the plan with both axes a quarter smaller, within the floors; itself where there is none."""
        return shrunk_after_oom(failed, self._reachable_axes(failed)) or failed

    def restart(self, plan: Plan) -> None:
        """Begin a period under a plan."""
        if plan != self.plan:
            self._compile_cost.change()
        self.plan = plan
        self._seen = PeriodStats()

    def leave_for(self, plan: Plan, reason: str) -> None:
        """Continue with a plan after a failure, and remember the change."""
        if plan != self.plan:
            self.statistics.note_change(self._iteration, self.plan, plan, reason)
            self._settled = None
        self.restart(plan)

    def expected_of(self, plan: Plan) -> int | None:
        """Return the peak that is expected of a plan, as the controller reasons about plans."""
        return self._planner.expected_bytes(plan)

    @property
    def largest_peak(self) -> int | None:
        """Bytes of the largest peak of the period so far."""
        return max(self._seen.peaks, default=None)

    def _see_limit(self, limit_bytes: int | None) -> None:
        """Where a resumed run has more memory than before, what failed may be tried again."""
        if limit_bytes and self._limit_bytes and limit_bytes > MORE_MEMORY * self._limit_bytes:
            logger.info(
                "%s: more memory is available than before, so plans that ran out of memory may be tried again",
                self.name,
            )
            self._failures.clear()
            self._planner.reset()
        self._limit_bytes = limit_bytes or self._limit_bytes

    def _decide_if_due(self, reading: PeakReading, *, is_whole: bool) -> PolicyDecision | None:
        plan, limit = self.plan, reading.limit
        if plan is None or not limit:
            return None
        if (bounded := self._within_maxima(plan)) != plan:
            # The option file's bounds are lower than they were, or smaller values were asked for.
            return self._even(PolicyDecision(bounded, f"{plan} is beyond the bounds"))
        peaks = self._seen.peaks
        if not is_whole:
            return None
        if len(peaks) >= self.settings.adjustment_frequency:
            return self._decide_on_period(plan, limit)
        if self.settings.warmup_period and not self.statistics.history:
            return None
        if self._planner.can_predict():
            # A run that resumes with more memory, or under options that need other memory, chooses anew at once.
            self._seen = PeriodStats(available=reading.available)
            return self._even(self._planner.decide(self._period(limit)))
        if len(peaks) == self._planner.early_steps(plan):
            # The first step of a plan may take less or more than all others, so the largest peak stands for them.
            target, margin = self.settings.target_vram_usage, self.settings.safety_margin
            peak = without_small_spikes(peaks, int(target * limit), int(margin * limit))
            few = replace(self._period(limit), peak_bytes=peak, typical_bytes=peak)
            if len(peaks) == EARLY_STEPS:
                few = replace(few, units_per_s=None)  # too few to tell how fast it is
            return self._even(self._planner.decide(few))
        return None

    def _decide_on_period(self, plan: Plan, limit_bytes: int) -> PolicyDecision:
        """Decide after a whole period; the plan that was left comes back before anything else grows."""
        peaks, target_bytes = self._seen.peaks, int(self.settings.target_vram_usage * limit_bytes)
        self.statistics.history.append(max(peaks) / limit_bytes)
        peak = self._failures.decisive_peak(plan, peaks, target_bytes, int(self.settings.safety_margin * limit_bytes))
        period = replace(self._period(limit_bytes), peak_bytes=peak)
        fits = self._failures.fits_by_itself(plan, peaks, target_bytes)
        if fits and period.typical_bytes is not None and period.typical_bytes > target_bytes:
            # What another process took for a whole period is not what the plan needs.
            expected = self._planner.expected_bytes(plan)
            period = replace(period, typical_bytes=expected, reserved_bytes=None)
        home = self._way_home(plan, period)
        # Where there is a way back, or home is blocked for a while, nothing else may grow meanwhile.
        may_grow = period.may_grow and home is None and not self._failures.is_waiting
        decision = self._even(self._planner.decide(replace(period, may_grow=may_grow)))
        if decision.plan != plan:
            if decision.is_pressure and fits:
                self._failures.left(plan)  # a spike or a neighbour drives it away
                return self._nearest_way_out(decision, period, peak, target_bytes)
            return decision
        if home is not None and not self._cooldown:
            expected = self._planner.expected_bytes(home)
            return PolicyDecision(home, f"{plan} was temporary, and {home} fits again", expected)
        self._say_why_it_stays(plan, decision)
        self._seen = PeriodStats()
        if peak <= target_bytes and self._failures.home is None:
            self._settled = {"plan": plan.to_dict(), "conditions": self._conditions(limit_bytes, self.axes)}
        return decision

    def _conditions(self, limit_bytes: int, axes: tuple[Axis, ...]) -> dict[str, Any]:
        """Return what decides, beside the network, where a run settles; as JSON gives it back."""
        return {
            "limit_bytes": limit_bytes,
            "target": self.settings.target_vram_usage,
            "margin": self.settings.safety_margin,
            "axes": [[axis.name, axis.minimum, axis.maximum, axis.multiple] for axis in axes],
            "configured_batch": self.configured_batch,
            "objective": self.settings.objective,
            "samples": self.effective.samples,
        }

    def _way_home(self, plan: Plan, period: PolicyInput) -> Plan | None:
        """Return the plan to go back to from a way out, if that fits what there is now."""
        home = self._failures.way_back(plan, period.axes, period.configured_batch)
        home = None if home is None else self.effective.even(home)
        return home if home not in (None, plan) and self._planner.fits_again(home, period) else None

    def _nearest_way_out(
        self, decision: PolicyDecision, period: PolicyInput, peak_bytes: int, target_bytes: int
    ) -> PolicyDecision:
        """Return the plan just below one that has been blocked, where that is enough, instead of a much smaller one."""
        near = self._failures.way_back(decision.plan, period.axes, period.configured_batch)
        if near is None or near == period.plan or peak_bytes * self.work(near) > target_bytes * self.work(period.plan):
            return decision
        expected = self._planner.expected_bytes(near)
        reason = f"peak {peak_bytes / period.limit_bytes:.1%} is a little above the target: {period.plan} -> {near}"
        return self._even(PolicyDecision(near, reason, expected, is_pressure=True))

    def _say_why_it_stays(self, plan: Plan, decision: PolicyDecision) -> None:
        """Log it once: of the same words with figures that waver a little only the first are news."""
        reason = decision.reason
        if wait_s := self._compile_cost.seconds_to_wait:
            cost_s = self._compile_cost.last_s
            reason += f"; torch.compile took {cost_s:.0f} s for this plan, so growth waits {wait_s:.0f} s of steps"
        sentence = f"{plan}: {_FIGURES.sub('#', reason)}"
        if sentence != self._last_sentence:
            logger.info("%s: %s stays: %s", self.name, plan, reason)
        self._last_sentence = sentence

    def _period(self, limit_bytes: int) -> PolicyInput:
        """Return what was seen of the present plan, which may be nothing yet."""
        if self.plan is None:
            raise RuntimeError("no plan is set")
        return PolicyInput(
            plan=self.plan,
            peak_bytes=self.largest_peak,
            # The typical peak is what the plan needs, so that one spike shrinks it once and is then forgotten.
            typical_bytes=self._seen.typical_peak,
            limit_bytes=limit_bytes,
            target=self.settings.target_vram_usage,
            margin=self.settings.safety_margin,
            axes=self._reachable_axes(self.plan),
            configured_batch=self.configured_batch or self.plan.batch_size,
            blocked=self._failures.blocked,
            may_grow=self._may_grow,
            reserved_bytes=self._seen.typical_reserved,
            available_bytes=self._seen.available,
            flushes=self._seen.flushes,
            units_per_s=self._seen.typical_units_per_s,
        )

    @property
    def _may_grow(self) -> bool:
        is_spent = len(self.statistics.changes) >= self.settings.max_adjustments
        return self._cooldown == 0 and not is_spent and not self._compile_cost.seconds_to_wait

    def _even(self, decision: PolicyDecision) -> PolicyDecision:
        return replace(decision, plan=self.effective.even(decision.plan))

    def _within_maxima(self, plan: Plan) -> Plan:
        highest = {axis.name: min(plan[axis.name], axis.clamp(axis.maximum)) for axis in self.axes}
        return plan.changed(**highest)

    def _reachable_axes(self, plan: Plan) -> tuple[Axis, ...]:
        """Return the bounds; a run that starts below a minimum grows to it from where it is."""
        return self.bounds.apply_minima(self.axes, plan)

    def limit_to(self, values: Mapping[str, int]) -> None:
        """Go to these values as far as memory admits, and no further; a larger plan shrinks to them."""
        self.bounds.ceilings = dict(values)
        self.axes = self.bounds.clip(self.run_axes)

    def bounded(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Return a run's axes within the bounds of the options; what is asked for lowers maxima, never minima."""
        return self.bounds.clip(axes)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs; bounds and switches come from the option file."""
        return {
            "plan": self.plan.to_dict() if self.plan else None,
            "configured_batch": self.configured_batch,
            "first": self._first.to_dict() if self._first else None,
            "noise": self.noise.state_dict() if self.noise is not None else None,
            "iteration": self._iteration,
            "cooldown": self._cooldown,
            "seen": self._seen.state_dict(),
            "settled": self._settled,
            "has_forgotten": self._is_invalidated,
            "limit_bytes": self._limit_bytes,
            "kind": self.kind,
            "steering": self._planner.state_dict(),
            "failures": self._failures.state_dict(),
            "statistics": self.statistics.state_dict(),
            "compile_cost": self._compile_cost.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self.plan = Plan.from_dict(state["plan"]) if state["plan"] else None
        self.configured_batch = state["configured_batch"]
        self._first = Plan.from_dict(state["first"]) if state.get("first") else None  # not in earlier checkpoints
        if self.noise is not None and state.get("noise"):
            self.noise.load_state_dict(state["noise"])
        self._iteration, self._cooldown = int(state["iteration"]), int(state["cooldown"])
        self._seen, self._settled = PeriodStats.from_state(state["seen"]), state["settled"]
        self._is_invalidated = bool(state["has_forgotten"])
        if self._is_invalidated:
            self._planner = self._new_planner()  # what was predicted of this run is not what it needs
        if state["kind"] == self.kind:
            self._limit_bytes = state["limit_bytes"]
            self._planner.load_state_dict(state["steering"])
            self._failures.load_state_dict(state["failures"])
        else:
            logger.warning("%s: options that memory depends on have changed: what was measured is dropped", self.name)
            self._settled = None
        self.statistics.load_state_dict(state["statistics"])
        if "compile_cost" in state:  # not in earlier checkpoints
            self._compile_cost.load_state_dict(state["compile_cost"])

    def prepare(self, facts: RunFacts) -> None:
        """Take up the axes of a run that is being built, and share the samples of every step among its ranks.

        Raises:
            ValueError: they cannot be shared equally, or the plans of the run do not count them.
        """
        if self.effective.samples is not None and count_axis(facts.axes) is None:
            raise ValueError("target_batch_size asks for samples of a step, which the plans of this run do not count")
        if facts.world_size > 1:
            self.effective = replace(self.effective, world_size=facts.world_size)
            if (count := count_axis(facts.axes)) is not None and not self.effective.may_grow:
                self.bounds = self.bounds.at_most(count.name, self.effective.samples)
            self._planner = self._new_planner()
        self.take_axes(facts.axes)

    def set_prior(self, peaks: tuple[Prior, RatioPrior], reserved: tuple[Prior, RatioPrior] | None = None) -> None:
        """Take what a trace says of plans, before the first step; ``policy: step`` has no use for it.

        Args:
            peaks: bytes of a step by forward batch and size, and how the peaks to be measured compare with them.
            reserved: the same for the least with which the allocator need not flush.
        """
        if self.settings.policy == "jump":
            least = CostModel(*reserved) if reserved is not None else None
            self._planner = self._for_objective(Jump(CostModel(*peaks), least))

    def learn(self, peaks: Mapping[Plan, int]) -> None:
        """Take what plans were measured to peak at, before the first step, where no trace says what they need.

        Args:
            peaks: bytes by plan.
        """
        if self.settings.policy == "jump":
            cost = CostModel(None, power=self._power)
            for plan, peak in peaks.items():
                cost.observe(shape_of(self.effective.forward(plan)), peak)
            self._planner = self._for_objective(Jump(cost, foresees=True))

    def initial_plan(self, plan: Plan) -> Plan:
        """Return the plan a new run starts with instead of ``plan``: with ``target_batch_size`` that many samples."""
        self._first = self.effective.forward(plan)
        self.configured_batch = self._first.batch_size
        return self.effective.whole(self.effective.forward(plan))

    def calibration_state(self) -> dict[str, Any] | None:
        """Return what a later run of the same kind may start from; ``None`` while no plan has settled.

        What plans need after :meth:`invalidate` is not what they need in a run that begins.
        """
        if self._settled is None or self.settings.policy != "jump" or self._is_invalidated:
            return None
        return {**self._settled, "steering": self._planner.state_dict()}

    def load_calibration(self, state: Mapping[str, Any], facts: RunFacts, limit_bytes: int) -> Plan | None:
        """Take what :meth:`calibration_state` gave; return the plan it settled at, if this run would settle there, too.

        Under another limit, other bounds or another target what was measured still holds, and the run jumps by it.
        """
        self.initial_plan(facts.plan)
        plan, planner = Plan.from_dict(state["plan"]), dict(state["steering"])
        axes = self.bounded(facts.axes)
        same = state["conditions"] == self._conditions(limit_bytes, axes)
        if self.settings.objective == "goodput":
            # What samples are worth depends on how far a run has come: it begins with the file's batch.
            self._planner.load_state_dict({**planner, "jumped": False, "corrected": False, "rest": None})
            return None
        if not (same and all(axis.name in plan and axis.admits(plan[axis.name]) for axis in axes)):
            self._planner.load_state_dict({**planner, "jumped": False, "corrected": False, **NO_SPEEDS})
            return None
        self._planner.load_state_dict(planner)
        return self.effective.whole(plan)

    def expected_bytes(self, plan: Plan) -> int | None:
        """Return what its policy expects of a plan of the run."""
        return self._planner.expected_bytes(self.effective.forward(plan))

    def start(self, facts: RunFacts) -> bool:
        """Take up axes and plan of the run; return whether a period of unmeasured steps begins."""
        self.take_axes(facts.axes)
        if self.configured_batch is None:
            self.initial_plan(facts.plan)
        plan = self.effective.forward(facts.plan)
        if plan != self.plan:
            self.restart(plan)
        # A resume in mid-period continues it; where a plan is still to be chosen, its first period is yet to begin.
        return not self._seen.peaks and not (self._planner.can_predict() and not self.settings.warmup_period)

    def begin(self, now: PeakReading, probes: int) -> PolicyDecision | None:
        """Choose the plan of the first batch by what was predicted; it is then measured before it is trained."""
        if self.plan is None or not now.limit or self.settings.warmup_period or not self._planner.can_predict():
            return None
        self._see_limit(now.limit)
        self._seen = PeriodStats(available=now.available)
        decision = self._even(self._planner.decide(replace(self._period(now.limit), probes_left=probes)))
        self.restart(decision.plan)
        return decision

    def after_probe(self, probe: Probe) -> PolicyDecision | None:
        """Correct the choice by what was measured of it; ``None`` once it is the best that is known to fit."""
        if self.plan is None or not probe.limit:
            return None
        available = self._seen.available
        self._seen = PeriodStats(available=available)
        if probe.peak is None:
            self._planner.mark_failed(self.plan, probe.limit)
        else:
            self._seen.add(probe.peak)
        decision = self._planner.decide(replace(self._period(probe.limit), probes_left=probe.left))
        self._seen = PeriodStats(available=available)
        if probe.peak is None and self.work(smaller := self.shrunk(self.plan)) < self.work(decision.plan):
            # How much too large it was is not known.
            decision = replace(decision, plan=smaller, expected_bytes=self._planner.expected_bytes(smaller))
        decision = self._even(decision)
        if decision.plan == self.plan:
            return None
        self.restart(decision.plan)
        return decision


def controllers_of(automations: Iterable[Automation]) -> list[Controller]:
    """Return the controllers of those automations that have one (``steers_memory``)."""
    held = (getattr(automation, "controller", None) for automation in automations)
    return [controller for controller in held if isinstance(controller, Controller)]
