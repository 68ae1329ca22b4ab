"""What a step notes of its tasks while it is on its way, and the weights that follow from it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainauto.core.errors import InputError
from trainauto.core.objectives import Gathering
from trainauto.core.records import StepRecord
from trainauto.tasks.multitask.losses.balancing import TaskBalancer, check_tasks, check_weights
from trainauto.tasks.multitask.losses.shared_layer import TaskGradients
from trainauto.tasks.multitask.losses.task_losses import TaskSums, weighted_loss
from trainauto.tasks.multitask.model_inputs import TASK_IDS

Gather = Callable[[Tensor], Tensor]
"""Sums a tensor over processes."""


@dataclass(frozen=True)
class LargestPart:
    """The largest forward pass of a step.

    Attributes:
        samples: it held.
        tokens: of its padded rows; 0 without any.
        images: of each sample, padded; 0 without any.
        task_ids: of the samples, (samples,); ``None`` where there is one task.
    """

    samples: int
    tokens: int
    images: int
    task_ids: Tensor | None

    @classmethod
    def of(cls, inputs: Mapping[str, Any], samples: int) -> "LargestPart":
        """Look at a part of a batch."""
        rows, images = inputs.get("input_ids"), inputs.get("pixel_values")
        tokens = rows.shape[1] if isinstance(rows, Tensor) and rows.ndim == 2 else 0
        most = images.shape[1] if isinstance(images, Tensor) and images.ndim == 5 else 0
        return cls(samples, tokens, most, inputs.get(TASK_IDS))

    def counts(self, tasks: Sequence[str]) -> dict[str, int]:
        """Return how many samples it had of each task."""
        if self.task_ids is None:
            return {tasks[0]: self.samples}
        counts = Counter(self.task_ids.tolist())
        return {task: counts[number] for number, task in enumerate(tasks) if counts[number]}


class StepTasks:
    """Losses and gradients of tasks, over the parts that a step runs in.

    Attributes:
        tasks: their names, in the order of their ids.
        balancer: changes the weights; ``None`` leaves them.
        largest: the largest part of the step on its way.

    Args:
        tasks: see above.
        weights: of each task; a task that is not named weighs 1.
        balancer: see above; with it, its own initial weights count.

    Raises:
        InputError: weights cannot be used, or are of tasks that there are no samples of.
    """

    def __init__(self, tasks: Sequence[str], weights: Mapping[str, float], balancer: TaskBalancer | None) -> None:
        self.tasks = tuple(tasks)
        check_weights(weights)
        if self.tasks:
            check_tasks("task_loss_weights", weights, self.tasks)
        if weights and balancer is not None:
            raise InputError(
                "task_loss_weights and a balancer both say what tasks weigh: give the balancer the weights"
            )
        self._weights = {task: weights.get(task, 1.0) for task in self.tasks}
        self.balancer = balancer
        self.largest: LargestPart | None = None
        self._sums = TaskSums(self.tasks)
        self._gradients: TaskGradients | None = None

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each task's loss now."""
        return self.balancer.weights if self.balancer is not None else self._weights

    def balance_at(self, names: Sequence[str]) -> None:
        """Look at gradients of tasks at these weights of the model from now on."""
        self._gradients = TaskGradients(names)

    def is_looked_at(self, step: int) -> bool:
        """Whether a step, numbered from 0, looks at gradients of tasks."""
        return self._gradients is not None and self.balancer is not None and self.balancer.is_due(step)

    def takes_full_memory(self, step: int) -> bool:
        """Whether a step looks at gradients of tasks, where any does."""
        return self._gradients is None or self.is_looked_at(step)

    def loss(self, losses: Tensor, masks: Tensor) -> Tensor:
        """Return the loss of a part; see :func:`~trainauto.tasks.multitask.losses.task_losses.weighted_loss`."""
        weights = self.weights
        return weighted_loss(losses, masks, [weights.get(task, 1.0) for task in self.tasks])

    @property
    def compares_gradients(self) -> bool:
        """Whether any step looks at gradients of tasks."""
        return self._gradients is not None and self.balancer is not None

    def rehearse(self, model: nn.Module, loss: Tensor, losses: Tensor, masks: Tensor) -> None:
        """Take the memory that a part takes which looks at gradients of tasks, and note nothing.

        Steps are predicted and tried by it: not every one looks, but each must have the room to.
        """
        if self._gradients is not None:
            sums = TaskGradients(self._gradients.names).add(model, losses, masks)
            # They are there as long as the graph is, as those of a step are.
            loss.register_hook(partial(_hold, sums))  # type: ignore[no-untyped-call]

    def note(self, model: nn.Module, inputs: Mapping[str, Any], losses: Tensor, masks: Tensor, *, looks: bool) -> None:
        """Count a part of a step.

        Args:
            model: that computed it.
            inputs: what it holds.
            losses: of its samples, (N,), without weights of tasks.
            masks: which are of each task, (tasks, N).
            looks: whether the step looks at gradients of tasks.
        """
        self._sums.add(losses, masks)
        part = LargestPart.of(inputs, masks.shape[1])
        if self.largest is None or part.samples > self.largest.samples:
            self.largest = part
        if self._gradients is not None and looks:
            self._gradients.add(model, losses, masks)

    def begin(self) -> None:
        """Begin a pass, and forget what was noted of an attempt before it."""
        self.forget()

    def task_losses(self) -> dict[str, tuple[float, int]]:
        """Return, by task, the mean loss of its samples in the pass that has run, and how many these are."""
        losses, samples = self._sums.read()
        return {task: (loss, samples[task]) for task, loss in losses.items()}

    def recorded(self, record: StepRecord, ranks: Gathering) -> None:
        """Have the weights follow a step, unless its gradients were no finite numbers; the same on every rank."""
        if not (record.skipped or record.non_finite):
            norms = self._norms(record, ranks) if self.is_looked_at(record.step - 1) else None
            self._learn(record.task_losses, record.task_samples, norms)
        self.forget()

    def _norms(self, record: StepRecord, ranks: Gathering) -> list[float]:
        """Return the norm of each task's gradient over the samples of all ranks."""
        sums = self._gradients.packed() if self._gradients is not None else None
        counts = [record.task_samples.get(task, 0) for task in self.tasks]
        if ranks.world_size == 1:
            return TaskGradients.norms(sums, counts) if sums is not None else [0.0] * len(counts)
        # Of unequal ranks one may have had no samples.
        parts = ranks.gather(sums.cpu().numpy().tobytes() if sums is not None else b"")

        def of_all() -> list[float]:
            arrays = [np.frombuffer(part, np.float32).reshape(len(counts), -1) for part in parts if part]
            return TaskGradients.norms(torch.from_numpy(np.sum(arrays, axis=0)), counts)

        norms: list[float] = ranks.broadcast_object(of_all)
        return norms

    def forget(self) -> None:
        """Drop what was noted of the step on its way."""
        self.largest = None
        self._sums.forget()
        if self._gradients is not None:
            self._gradients.forget()

    def end(self, gather: Gather, *, skipped: bool) -> tuple[dict[str, float], dict[str, int]]:
        """Return mean losses and samples of each task, and change the weights where gradients were looked at.

        Args:
            gather: sums over processes.
            skipped: whether gradients overflowed: nothing is learned from them.
        """
        sums = self._sums.packed()
        losses, samples = self._sums.read(gather(sums) if sums is not None else None)
        gradients = self._gradients.packed() if self._gradients is not None else None
        if not skipped:
            counts = [samples.get(task, 0) for task in self.tasks]
            norms = TaskGradients.norms(gather(gradients), counts) if gradients is not None else None
            self._learn(losses, samples, norms)
        self.forget()
        return losses, samples

    def _learn(self, losses: Mapping[str, float], samples: Mapping[str, int], norms: Sequence[float] | None) -> None:
        if self.balancer is None:
            return
        self.balancer.see_losses(losses, samples)
        if norms is not None:
            self.balancer.update({task: norms[place] for place, task in enumerate(self.tasks) if samples.get(task)})

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {"balancer": self.balancer.state_dict()} if self.balancer is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` returned.

        Raises:
            InputError: it follows another rule, or none, or is of other tasks.
        """
        if (self.balancer is not None) != ("balancer" in state):
            how = "without" if self.balancer is not None else "with"
            raise InputError(f"the checkpoint is of a run {how} a balancer of tasks: resume it as it was begun")
        if self.balancer is not None:
            self.balancer.load_state_dict(state["balancer"])


def _hold(sums: Tensor, _gradient: Tensor) -> None:
    """Be a hook that keeps a tensor as long as there is a graph."""
    del sums
