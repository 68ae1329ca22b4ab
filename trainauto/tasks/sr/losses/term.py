"""How a loss takes part in a step: what it compares with, and from which step to which it counts."""

from dataclasses import dataclass

GT = "gt"
"""Name of the reference in a batch, as the set's files hold it."""
SHARP = "gt_usm"
"""Name of its sharpened version, where the set makes one."""


@dataclass(frozen=True)
class LossTerm:
    """How a loss takes part.

    Attributes:
        target: name of the tensor of the batch that outputs are compared with.
        is_scheduled: whether its weight follows the fields below; it is then told with each step.
        start_iter: the last step before it begins to count.
        ramp_iters: steps in which its weight rises evenly from 0 to the whole of it.
        end_iter: the last step in which it counts; ``None`` for the end of the run.
    """

    target: str = GT
    is_scheduled: bool = False
    start_iter: int = 0
    ramp_iters: int = 0
    end_iter: int | None = None

    def share(self, step: int | None) -> float:
        """Return the share of its weight in a step, 0 to 1.

        Args:
            step: its 1-based number; ``None`` for one that stands for all, of which the whole weight is a part.
        """
        if step is None:
            return 1.0
        if step <= self.start_iter or (self.end_iter is not None and step > self.end_iter):
            return 0.0
        return min(1.0, (step - self.start_iter) / (self.ramp_iters + 1))


WHOLE = LossTerm()
