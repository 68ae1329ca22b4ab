"""What failed or spiked under which plan, weighed against how long it had held. Nothing is blocked for ever.

Pure bookkeeping in steps of the run: no torch, no clock, no bytes of a device.

- A plan that has held for :data:`HELD_PERIODS` since its last failure is trusted: the failing batch runs in pieces and
  the plan stays. A second failure before it has held as long again, or one of a new plan, shrinks both axes.
- A plan that had been seen to fit is gone back to once the cooldown is over. One that fails a third time within
  :data:`RETRY_PERIODS`, or that had never fitted, is blocked, and everything as large with it; the run then settles
  just below it.
- A block ends after :data:`RETRY_PERIODS`. If what it had blocked fails again, it is put up for twice as long.
- A plan under which many steps of a period exceed the target is left. If it was by little, or happens again, the plan
  is blocked; else it comes back after a period.
- A rare step above target is a spike. Small ones, within the safety margin above it, change nothing: peaks vary by as
  much. The first larger one shrinks the plan as any excess does, and the plan comes back; later ones are left alone as
  long as they stay rare, for what they need is known to fit.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from trainauto.control.step_policy import is_blocked
from trainauto.core.plan import Axis, Plan, count_axis, size_axis, work

HELD_PERIODS = 10
"""Periods after which a plan is trusted, or trusted again after a failure."""

RETRY_PERIODS = 20
"""Periods after which something that failed is tried again the first time; also the window of frequent failures."""

LONGEST_BLOCK_PERIODS = 160
"""Waiting doubles up to here."""

FREQUENT_FAILURES = 3
"""So many failures within :data:`RETRY_PERIODS` are no accident any more: the run settles below the plan."""

NEAR = 0.95
"""Share of the work allowed that is near enough not to look for smaller crops with more samples."""

NOTCH = 0.015
"""Share of the work by which the run settles below a plan that is blocked: less is within what peaks vary by."""

MOST_SIZES = 512
"""Sizes looked at: of a hundred thousand, neighbours do not differ."""

SPIKE_PERIODS = 50
"""Periods for which a spike is remembered."""

RARE_STEPS, SMALL_STEPS = 0.05, 0.40
"""Largest share of a period's steps that counts as spikes (at least one step does): of large ones, and of small ones,
which lie within the safety margin above target."""

RECENT_PERIODS, STEADY_PERIODS = 8, 7
"""Where so many of the recent periods had a large spike, that is what the plan needs, and no accident."""

REMEMBERED_PLANS = 12


@dataclass
class _Block:
    """A plan that is not to be tried again before a step; everything of as much work is blocked with it."""

    plan: Plan
    until: int
    periods: int


@dataclass(frozen=True)
class Answer:
    """How to answer a failure.

    Attributes:
        shrinks: both axes are to shrink; otherwise the plan stays.
        rule: why, in words.
    """

    shrinks: bool
    rule: str


class FailureMemory:
    """Remembers failures and spikes of one run's plans.

    Args:
        period_steps: steps of a period; everything ages in periods.
        work: what activations grow with, by plan.

    Attributes:
        home: the plan that was left for a failure, a spike or a neighbour, to be gone back to; ``None`` at home.
    """

    def __init__(self, period_steps: int, work: Callable[[Plan], int]) -> None:
        self._period = period_steps
        self._work = work
        self._now = 0
        self._held: dict[Plan, int] = {}
        self._trusted: dict[Plan, None] = {}
        self._failures: deque[int] = deque(maxlen=FREQUENT_FAILURES)
        self._blocks: list[_Block] = []
        self._spiked_at: int | None = None
        self._burst_at: int | None = None
        self._spiky: deque[bool] = deque(maxlen=RECENT_PERIODS)
        self.home: Plan | None = None

    @property
    def blocked(self) -> tuple[Plan, ...]:
        """Plans that are not to be tried now, nor anything of as much work."""
        return tuple(block.plan for block in self._blocks if block.until > self._now)

    def step(self, healthy: Plan | None) -> None:
        """Take in a step; ``healthy`` is the plan it trained as a whole, without a failure."""
        self._now += 1
        if healthy is None:
            return
        steps = self._held.pop(healthy, 0) + 1
        self._held[healthy] = steps
        while len(self._held) > REMEMBERED_PLANS:
            self._held.pop(next(iter(self._held)))
        if steps >= HELD_PERIODS * self._period and healthy not in self._trusted:
            self._trusted[healthy] = None
            while len(self._trusted) > REMEMBERED_PLANS:
                self._trusted.pop(next(iter(self._trusted)))
        if self._blocks and steps >= HELD_PERIODS * self._period:
            # It was tried again, and holds: nothing up to it is in doubt any more.
            self._blocks = [block for block in self._blocks if self._work(block.plan) > self._work(healthy)]

    @property
    def is_waiting(self) -> bool:
        """Whether home is blocked for now: the run has settled below it, and nothing else is to grow meanwhile."""
        return self.home is not None and is_blocked(self.home, self.blocked, self._work)

    def out_of_memory(self, plan: Plan, *, has_fitted: bool, recovered: bool) -> Answer:
        """Take in that a step ran out of memory.

        Args:
            plan: under which it did.
            has_fitted: the plan was measured before, so that something else took the memory this time.
            recovered: the same batch was trained in pieces.
        """
        held = self._held.pop(plan, 0) // self._period
        self._held[plan] = 0
        self._failures.append(self._now)
        self._spiked_at = self._now
        if recovered and held >= HELD_PERIODS:
            return Answer(
                False, f"it had held for {held} periods: this batch runs in micro-batches, and the plan stays"
            )
        if retried := self._retried(plan):
            periods = self.block(retried)
            rule = f"it ran out of memory again: the plan shrinks, and it is not tried for {periods} periods"
        elif not has_fitted or self._is_frequent():
            periods = self.block(plan)
            why = f"failure {FREQUENT_FAILURES} within {RETRY_PERIODS} periods" if has_fitted else "the plan is new"
            rule = f"{why}: the plan shrinks, and no plan as large is tried for {periods} periods"
        elif not recovered:
            rule = "the plan shrinks until the cooldown is over"
        else:
            rule = f"it had held for {held} of {HELD_PERIODS} periods: the plan shrinks until the cooldown is over"
        if has_fitted:
            self.left(plan)
        return Answer(True, rule)

    def left(self, plan: Plan) -> None:
        """Remember a plan that fits by itself and was left all the same, to go back to it."""
        if self.home is None or self._work(plan) > self._work(self.home):
            self.home = plan

    def block(self, plan: Plan) -> int:
        """Block a plan and all as large, twice as long as the last time; return the periods."""
        self._held[plan] = 0
        again = [block for block in self._blocks if block.plan == plan]
        periods = min(LONGEST_BLOCK_PERIODS, 2 * again[-1].periods) if again else RETRY_PERIODS
        other_blocks = [block for block in self._blocks if block.plan != plan]
        self._blocks = [*other_blocks, _Block(plan, self._now + periods * self._period, periods)][-REMEMBERED_PLANS:]
        return periods

    def way_back(self, present: Plan, axes: Sequence[Axis], configured_batch: int) -> Plan | None:
        """Return the plan to go back to: home, or the largest below it that is not blocked.

        Args:
            present: the plan of now; there is nothing to go back to from one as large.
            axes: bounds and multiples.
            configured_batch: batches shrink down to this before crops do.
        """
        home = self.home
        is_above = home is not None and self._work(present) < self._work(home)
        if home is None or not is_above or not all(axis.admits(home[axis.name]) for axis in axes):
            self.home = None
            return None
        ceiling = min((self._work(plan) for plan in self.blocked), default=None)
        if ceiling is not None and self._work(home) >= ceiling:
            below = largest_below(home, int(ceiling * (1 - NOTCH)), axes, configured_batch)
            return below if below is not None and self._work(below) > self._work(present) else None
        return home

    def decisive_peak(self, plan: Plan, peaks: Sequence[int], target_bytes: int, margin_bytes: int) -> int:
        """Return the peak that decides upon a whole period: the largest, but for spikes that are small or known.

        Args:
            plan: of the period.
            peaks: of its steps, bytes.
            target_bytes: what peaks are steered to.
            margin_bytes: what a rare one may be above that.
        """
        largest, above = max(peaks), sum(peak > target_bytes for peak in peaks)
        is_small = largest <= target_bytes + margin_bytes
        self._spiky.append(not is_small)
        if not above or not self.fits_by_itself(plan, peaks, target_bytes):
            return largest  # it fits, or it does not
        if (within := without_small_spikes(peaks, target_bytes, margin_bytes)) <= target_bytes:
            return within
        if above > max(1, RARE_STEPS * len(peaks)):
            # A little too large is what the plan is; far too large is somebody else, unless he comes again.
            if is_small or self._is_recent(self._burst_at, RETRY_PERIODS):
                self.block(plan)
            self._burst_at = self._now
            return largest
        is_known = self._is_recent(self._spiked_at, SPIKE_PERIODS)
        self._spiked_at = self._now
        if retried := self._retried(plan):
            self.block(retried)  # it ran out of memory again
            return largest
        if sum(self._spiky) >= STEADY_PERIODS:
            self._spiky.clear()
            self.block(plan)
            return largest
        return max((peak for peak in peaks if peak <= target_bytes), default=target_bytes) if is_known else largest

    def fits_by_itself(self, plan: Plan, peaks: Sequence[int], target_bytes: int) -> bool:
        """Say whether a plan needs no more than the target: by its typical peak, or because it had held before.

        Of a plan that had held, a whole period above target comes from another process: it is left and gone back to.
        """
        return median(peaks) <= target_bytes or plan in self._trusted

    def clear(self) -> None:
        """Clear what failed: there is more memory than before, or plans need something else."""
        self._held.clear()
        self._trusted.clear()
        self._failures.clear()
        self._blocks.clear()
        self._spiky.clear()
        self._spiked_at, self._burst_at, self.home = None, None, None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {
            "now": self._now,
            "held": [[plan.to_dict(), steps] for plan, steps in self._held.items()],
            "trusted": [plan.to_dict() for plan in self._trusted],
            "failures": list(self._failures),
            "blocks": [[block.plan.to_dict(), block.until, block.periods] for block in self._blocks],
            "spiked_at": self._spiked_at,
            "burst_at": self._burst_at,
            "spiky": list(self._spiky),
            "home": self.home.to_dict() if self.home else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._now, self._spiked_at, self._burst_at = int(state["now"]), state["spiked_at"], state["burst_at"]
        self._held = {Plan.from_dict(plan): int(steps) for plan, steps in state["held"]}
        self._trusted = {Plan.from_dict(plan): None for plan in state["trusted"]}
        self._failures = deque(state["failures"], maxlen=FREQUENT_FAILURES)
        self._blocks = [_Block(Plan.from_dict(plan), int(until), int(n)) for plan, until, n in state["blocks"]]
        self._spiky = deque(state["spiky"], maxlen=RECENT_PERIODS)
        self.home = Plan.from_dict(state["home"]) if state["home"] else None

    def _retried(self, plan: Plan) -> Plan | None:
        """Return the smallest plan whose block has ended, but had blocked this one."""
        ended = [b.plan for b in self._blocks if b.until <= self._now and self._work(b.plan) <= self._work(plan)]
        return min(ended, key=self._work, default=None)

    def _is_recent(self, step: int | None, periods: int) -> bool:
        return step is not None and self._now - step <= periods * self._period

    def _is_frequent(self) -> bool:
        full = len(self._failures) == FREQUENT_FAILURES
        return full and self._now - self._failures[0] <= RETRY_PERIODS * self._period


def without_small_spikes(peaks: Sequence[int], target_bytes: int, margin_bytes: int) -> int:
    """Return the largest peak; that at or below target where only few are above it, and by less than the margin."""
    largest, above = max(peaks), sum(peak > target_bytes for peak in peaks)
    few = above <= max(1, SMALL_STEPS * len(peaks)) and median(peaks) <= target_bytes
    if above and few and largest <= target_bytes + margin_bytes:
        return max(peak for peak in peaks if peak <= target_bytes)
    return largest


def largest_below(plan: Plan, most: int, axes: Sequence[Axis], configured_batch: int) -> Plan | None:
    """Return a plan of at most so much work, near to it, of a size as large as may be; ``None`` if there is none.

    Batches stay at or above the configured one (or that of ``plan``) where a smaller size allows it.
    """
    count, size = count_axis(axes), size_axis(axes)
    if count is None and size is not None:
        fitting = bisect_right(size.values, most, key=lambda value: work(plan.with_size(value), axes))
        return plan.with_size(size.values[fitting - 1]) if fitting else None
    floors = (count.clamp(min(configured_batch, plan.batch_size)), count.clamp(count.minimum)) if count else (1,)
    sizes = range(plan.size, size.clamp(size.minimum) - 1, -size.multiple) if size else range(1, 2)
    sizes = sizes[:: max(1, len(sizes) // MOST_SIZES)]
    best: Plan | None = None
    for floor in floors:
        for value in sizes:
            # Work is that of the largest forward pass.
            of_one = work(plan.with_batch_size(1).with_micro_batches(1).with_size(value), axes)
            samples = count.clamp(min(count.maximum, plan.micro_batches * (most // of_one))) if count else 1
            candidate = plan.with_batch_size(samples).with_size(value)
            if samples < floor or work(candidate, axes) > most:
                continue
            if best is None or work(candidate, axes) > work(best, axes):
                best = candidate
            if work(candidate, axes) >= NEAR * most:
                return candidate
        if best is not None:
            return best
    return None
