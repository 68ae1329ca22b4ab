"""What plans for cards answer."""

from dataclasses import dataclass

from trainauto.core.plan import Axis, Plan
from trainauto.core.units import GIB
from trainauto.forecast.benchmark_plans import DeviceBenchmark
from trainauto.forecast.loss_bytes import LossBytes
from trainauto.forecast.plan_memory import PlanMemory
from trainauto.memory.cost.memory_forecast import MemoryForecast
from trainauto.options.cards import CardPreset

CONTEXT_BYTES = 700 * 1024**2
"""What CUDA itself holds of a card beside the allocator: published reports say 290 to 670 MiB; not measured by us."""

FITTING = {True: "yes", None: "likely", False: "no"}
"""Whether a plan fits, in words."""


@dataclass(frozen=True)
class KeptPlan:
    """What a run takes that stays with the plan of its option file.

    Attributes:
        plan: of the file.
        expected_bytes: its expected peak of allocated bytes.
        most_bytes: what the peak stays within with 99 % probability.
        reserved_bytes: the least that the allocator is expected to reserve for it.
        available_bytes: what it may reserve.
        fits: with 99 % probability; ``None`` where it is expected to, and less probable than that.
    """

    plan: Plan
    expected_bytes: int
    most_bytes: int
    reserved_bytes: int
    available_bytes: int
    fits: bool | None


@dataclass(frozen=True)
class CardPlan:
    """What a run would do on a card.

    Attributes:
        preset: the card and its bounds; its memory is no more than the option file's budget.
        memory_bytes: of the whole card.
        target: share of the memory that peaks may reach: the option file's, else the card's.
        plan: the best plan; ``None`` where not even the smallest fits.
        reason: why this one, and why none larger.
        expected_bytes: its expected peak of allocated bytes.
        most_bytes: what the peak stays within with 99 % probability.
        reserved_bytes: the least that the allocator is expected to reserve.
        frontier: for each size the largest batch that is admitted as the plan is; also beyond ``largest_batch`` where
            that bounds what a run does, and not what is looked at.
        largest_batch: bound of batches, whatever would fit.
        most_tokens: bound of a batch's tokens, where there is one: batches of shorter samples may be larger.
        kept: the plan of an option file in which nothing steers by memory: its run stays with it, whatever is best.
        memory: what that plan, else ``plan``, takes of the card, where that was asked.
    """

    preset: CardPreset
    memory_bytes: int
    target: float
    plan: Plan | None
    reason: str
    expected_bytes: int
    most_bytes: int
    reserved_bytes: int
    frontier: tuple[Plan, ...]
    largest_batch: int
    most_tokens: int | None = None
    kept: KeptPlan | None = None
    memory: PlanMemory | None = None

    def is_bounded(self, plan: Plan) -> bool:
        """Say whether it is no memory that bounds the batch of a plan."""
        if self.most_tokens is not None:
            return (plan.batch_size + 1) * plan.size > self.most_tokens
        return plan.batch_size >= self.largest_batch

    @property
    def limit_bytes(self) -> int:
        """Memory that the run may use of the card."""
        return int(self.preset.memory_gib * GIB)

    @property
    def available_bytes(self) -> int:
        """What the allocator may take of the card."""
        return min(self.limit_bytes, self.memory_bytes - CONTEXT_BYTES)

    @property
    def target_bytes(self) -> int:
        """What peaks stay within with 99 % probability."""
        return int(self.target * self.limit_bytes)


@dataclass(frozen=True)
class CardPlans:
    """What fits where.

    Attributes:
        name: of the run.
        network: type of its network.
        notes: what the answer does not know.
        forecast: what was traced.
        axes: of the run, before a card bounds them.
        cards: one answer a card.
        trials: plans that were tried on the device at hand, where that was asked for.
        bounded_by: what the option file's budget makes of cards; empty where it bounds none.
        losses: what each loss adds, where there are several.
    """

    name: str
    network: str
    notes: tuple[str, ...]
    forecast: MemoryForecast
    axes: tuple[Axis, ...]
    cards: tuple[CardPlan, ...]
    trials: DeviceBenchmark | None = None
    bounded_by: str = ""
    losses: LossBytes | None = None

    @property
    def memory(self) -> PlanMemory | None:
        """What the plan of a card takes, in detail, where that was asked."""
        return next((card.memory for card in self.cards if card.memory is not None), None)
