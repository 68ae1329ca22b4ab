"""What both documents call on a loader (C36); :meth:`update_plan` is behind both."""

from abc import ABC, abstractmethod

from trainauto.core.plan import Plan


class DocumentedSetters(ABC):
    """A loader whose plan is changed value by value.

    Attributes:
        plan: what it draws under.
    """

    plan: Plan

    @abstractmethod
    def update_plan(self, plan: Plan) -> None:
        """Draw under another plan."""

    def update_batch_size(self, batch_size: int) -> None:
        """Draw so many samples per optimizer step from now on."""
        self.update_plan(self.plan.with_batch_size(batch_size))

    def update_size(self, size: int) -> None:
        """Draw samples of this size from now on, in the unit of the plan's axis."""
        self.update_plan(self.plan.with_size(size))

    def update_lq_size(self, lq_size: int) -> None:
        """Draw crops of so many low-quality pixels from now on: :meth:`update_size` as super-resolution knows it."""
        self.update_size(lq_size)
