"""What both documents call on a loader, and what datasets of plugins read: names of super-resolution."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from trainauto.core.plan import BATCH_SIZE, Plan


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
        """Draw so many samples per optimizer step from now on.

        Raises:
            ValueError: plans of this loader do not count samples.
        """
        if BATCH_SIZE not in self.plan:
            raise ValueError(f"the plan is {self.plan}: it does not count samples")
        self.update_plan(self.plan.with_batch_size(batch_size))

    def update_size(self, size: int) -> None:
        """Draw samples of this size from now on, in the unit of the plan's axis.

        Raises:
            ValueError: plans of this loader have no size.
        """
        if not self.plan.has_size:
            raise ValueError(f"the plan is {self.plan}: it has no size")
        self.update_plan(self.plan.with_size(size))

    def update_lq_size(self, lq_size: int) -> None:
        """Draw crops of so many low-quality pixels from now on: :meth:`update_size` as super-resolution knows it."""
        self.update_size(lq_size)


class KeyValues(NamedTuple):
    """The values of a :class:`~trainauto.data.dynamic_dataset.SampleKey`."""

    sample: int
    size: int
    seed: int


class KeyNames(KeyValues):
    """Those values under the names that datasets read before there were samples other than crops."""

    __slots__ = ()

    @property
    def lq_size(self) -> int:
        """Side of the crop in pixels of the low-quality image: ``size``."""
        return self.size
