"""Losses of tasks: weighted into the loss of a part, and summed over the parts of a step."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def masks_of(task_ids: Tensor, tasks: int) -> Tensor:
    """Return which samples are of each task, (tasks, N) bool."""
    return task_ids.reshape(1, -1) == torch.arange(tasks, device=task_ids.device).reshape(-1, 1)


def weighted_loss(losses: Tensor, masks: Tensor, weights: Sequence[float]) -> Tensor:
    """Return the loss of a part of a step: the mean over its samples of each one's loss times its task's weight.

    It is no mean of tasks' means: the losses of parts, each weighted by its samples, then add up to the loss of the
    whole step exactly, however its tasks fall into parts.

    Args:
        losses: of the samples, (N,).
        masks: see :func:`masks_of`.
        weights: of the tasks, in the order of their masks.
    """
    factors = torch.tensor(list(weights), dtype=losses.dtype, device=losses.device) @ masks.to(losses.dtype)
    return (losses * factors).mean()


class TaskSums:
    """Sums of samples' losses by task, over the parts of a step; nothing waits for the device until :meth:`read`.

    Args:
        tasks: their names, in the order of their masks.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        self.tasks = tuple(tasks)
        self._sums: Tensor | None = None

    def add(self, losses: Tensor, masks: Tensor) -> None:
        """Count the samples of a part.

        Args:
            losses: of them, (N,), without weights.
            masks: see :func:`masks_of`.
        """
        values = torch.stack([losses.detach(), torch.ones_like(losses)])
        # No product of matrices: 0 times a loss of another task that is not finite would be no number.
        chosen = torch.where(masks, values.unsqueeze(1), torch.zeros_like(values).unsqueeze(1))
        sums = chosen.sum(2).double() if losses.device.type != "mps" else chosen.sum(2)
        self._sums = sums if self._sums is None else self._sums + sums

    def forget(self) -> None:
        """Drop what was counted."""
        self._sums = None

    def packed(self) -> Tensor | None:
        """Return sums and counts, (2, tasks), to be summed over processes; ``None`` where nothing was counted."""
        return self._sums

    def read(self, sums: Tensor | None = None) -> tuple[dict[str, float], dict[str, int]]:
        """Return the mean loss of each task that there were samples of, and how many.

        Args:
            sums: those of all processes; this one's where it is ``None``.
        """
        chosen = self._sums if sums is None else sums
        if chosen is None:
            return {}, {}
        losses, counts = chosen.tolist()
        rounded = {task: round(count) for task, count in zip(self.tasks, counts, strict=True)}
        samples = {task: count for task, count in rounded.items() if count > 0}
        totals: Mapping[str, float] = dict(zip(self.tasks, losses, strict=True))
        return {task: totals[task] / count for task, count in samples.items()}, samples
