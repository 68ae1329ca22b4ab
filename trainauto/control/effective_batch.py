"""An optimizer step of as many samples as was asked for, whatever fits into one forward pass."""

from dataclasses import dataclass
from math import ceil

from trainauto.core.plan import Plan


@dataclass(frozen=True)
class EffectiveBatch:
    """Between the plans of a run and those that a controller reasons about, whose batch is what one forward pass holds.

    Attributes:
        total: samples of every optimizer step, on all ranks; ``None`` leaves them to the controller, and plans are then
            the same.
        world_size: how many share them.
        may_grow: whether a forward pass that holds more than the step makes the step as large as itself; without it a
            step never changes.

    Raises:
        ValueError: they cannot be shared equally.
    """

    total: int | None = None
    world_size: int = 1
    may_grow: bool = False

    def __post_init__(self) -> None:
        if self.total is None:
            return
        if self.total < 1:
            raise ValueError(f"target_batch_size must be at least 1, got {self.total}")
        if self.total % self.world_size:
            nearest = max(1, round(self.total / self.world_size)) * self.world_size
            raise ValueError(
                f"target_batch_size {self.total} cannot be divided among {self.world_size} ranks; "
                f"the nearest is {nearest}"
            )

    @property
    def samples(self) -> int | None:
        """Samples of every optimizer step on one rank; the fewest where steps may grow."""
        return None if self.total is None else self.total // self.world_size

    def forward(self, plan: Plan) -> Plan:
        """Return what a controller reasons about: the largest forward pass of a run's plan."""
        if self.samples is None:
            return plan
        return plan.changed(micro_batches=1, batch_size=plan.forward_batch_size)

    def whole(self, plan: Plan) -> Plan:
        """Return the plan of a run whose forward passes are no larger than a controller's plan."""
        if self.samples is None:
            return plan
        if self.may_grow and plan.batch_size > self.samples:
            return plan.changed(micro_batches=1)
        return plan.changed(micro_batches=ceil(self.samples / plan.batch_size), batch_size=self.samples)

    def next_larger(self, plan: Plan) -> Plan | None:
        """Return a controller's plan with one micro-batch less; ``None`` where there is one only, or no target."""
        if self.samples is None or (pieces := ceil(self.samples / plan.batch_size)) == 1:
            return None
        return plan.changed(batch_size=ceil(self.samples / (pieces - 1)))

    def even(self, plan: Plan) -> Plan:
        """Return a controller's plan as it comes back: micro-batches are as equal as they can be."""
        return self.forward(self.whole(plan))
