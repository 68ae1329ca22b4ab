"""GradNorm: weights of tasks by which all of them train at similar rates (Chen et al. 2018, arXiv:1711.02257)."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.losses.balancing import LEAST_WEIGHT, TaskBalancer, normalized

TINY = 1e-12
"""Losses and norms are taken to be at least that: a task that is learned to the end has none to divide by."""


class GradNormBalancer(TaskBalancer):
    """Weights by which gradient norms of tasks become alike, and larger for tasks that learn more slowly.

    With L_i the mean loss of task i, w_i its weight, and W the shared weights, of the paper's section 3:

    - G_i = w_i * norm of the gradient of L_i at W, and G their mean over tasks;
    - r_i = (L_i / L_i(0)) over its mean over tasks: the relative inverse training rate;
    - the weights descend the sum of abs(G_i - G * r_i^alpha), the second term held constant;
    - after each step they are normalised to sum to the number of tasks.

    Three things are our own. The weights' optimizer (Adam) steps their logarithms, so that they stay above 0, and take
    as long from 1 to a hundredth as to a hundred. L_i is a mean over the steps since the last look: one batch says
    little. And the sum is divided by G, so that the rate means the same for losses of any size.

    Args:
        initial_weights: of each task; a task that is not named weighs 1.
        alpha: how strongly slower tasks are favoured; 0 makes norms alike. The paper's own figures: 1.5 where tasks
            differ much, 0.12 where they are similar.
        learning_rate: of the logarithms: 0.05 moves a weight by at most about a twentieth a look. 0 looks only.
        every: steps from one look at gradient norms to the next; each costs a backward pass a task from the losses to
            the shared weights.
        shared_layer: name of the module whose weights are W; ``None`` takes the last that all tasks train.
        least_weight: no weight is below it.

    Raises:
        InputError: a number cannot be used.
    """

    def __init__(
        self,
        initial_weights: Mapping[str, float] | None = None,
        alpha: float = 1.5,
        *,
        learning_rate: float = 0.05,
        every: int = 5,
        shared_layer: str | None = None,
        least_weight: float = LEAST_WEIGHT,
    ) -> None:
        if alpha < 0 or learning_rate < 0:
            raise InputError(f"alpha and learning_rate are 0 or more, got {alpha} and {learning_rate}")
        self.alpha = alpha
        self._learning_rate = learning_rate
        super().__init__(initial_weights, every=every, shared_layer=shared_layer, least_weight=least_weight)

    def begin(self, tasks: Iterable[str]) -> None:
        """Begin with these tasks; see :meth:`TaskBalancer.begin`."""
        super().begin(tasks)
        self._logarithms = {task: _scalar(math.log(weight)) for task, weight in self.weights.items()}
        parameters = list(self._logarithms.values())
        self._optimizer = torch.optim.Adam(parameters, lr=self._learning_rate) if parameters else None
        self._initial_losses: dict[str, float] = {}
        self._sums: dict[str, list[float]] = {}

    def see_losses(self, losses: Mapping[str, float], samples: Mapping[str, int]) -> None:
        """Take in a step."""
        for task, loss in losses.items():
            total = self._sums.setdefault(task, [0.0, 0.0])
            total[0] += loss * samples[task]
            total[1] += samples[task]

    def update(self, norms: Mapping[str, float]) -> None:
        """Step the weights by gradient norms, and by the losses since the last time.

        Tasks that the step had no samples of keep their weight, but for the normalisation. Norms that are not finite
        (gradients of float16 that overflowed) change nothing.
        """
        tasks = [task for task in norms if self._sums.get(task, [0.0, 0.0])[1]]
        if not tasks or not all(math.isfinite(norms[task]) for task in tasks):
            return
        losses = {task: max(TINY, self._sums[task][0] / self._sums[task][1]) for task in tasks}
        for task in tasks:
            self._initial_losses.setdefault(task, losses[task])
            del self._sums[task]
        targets = self._targets(losses, norms)
        weighted = {task: self.weights[task] * max(TINY, norms[task]) for task in tasks}
        self.factors = {task: weighted[task] / targets[task] for task in tasks}
        mean = math.fsum(weighted.values()) / len(tasks)
        # The derivative of abs(G_i - constant) by log(w_i) is G_i, with the sign of what is inside.
        self._step({task: math.copysign(weighted[task], weighted[task] - targets[task]) / mean for task in tasks})

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {
            **super().state_dict(),
            "logarithms": [float(value) for value in self._logarithms.values()],
            "optimizer": self._optimizer.state_dict() if self._optimizer is not None else {},
            "initial_losses": dict(self._initial_losses),
            "sums": {task: list(total) for task, total in self._sums.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` returned.

        Raises:
            InputError: it is of another rule, or of other tasks.
        """
        super().load_state_dict(state)
        for value, loaded in zip(self._logarithms.values(), state["logarithms"], strict=True):
            value.fill_(loaded)
        if self._optimizer is not None:
            self._optimizer.load_state_dict(state["optimizer"])
        self._initial_losses = dict(state["initial_losses"])
        self._sums = {task: list(total) for task, total in state["sums"].items()}

    def _targets(self, losses: Mapping[str, float], norms: Mapping[str, float]) -> dict[str, float]:
        """Return the norm that each task is steered to: the mean, times its relative inverse rate to the alpha."""
        rates = {task: loss / self._initial_losses[task] for task, loss in losses.items()}
        mean_rate = math.fsum(rates.values()) / len(rates)
        mean = math.fsum(self.weights[task] * max(TINY, norms[task]) for task in losses) / len(losses)
        return {task: mean * (rate / mean_rate) ** self.alpha for task, rate in rates.items()}

    def _step(self, slopes: Mapping[str, float]) -> None:
        if self._optimizer is None or not self._learning_rate:
            return
        for task, logarithm in self._logarithms.items():
            logarithm.grad = _scalar(slopes[task]) if task in slopes else None
        self._optimizer.step()
        raw = {task: math.exp(float(logarithm)) for task, logarithm in self._logarithms.items()}
        self.weights = normalized(raw, self._least)
        for task, logarithm in self._logarithms.items():
            logarithm.fill_(math.log(self.weights[task]))


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


class NormRatioBalancer(TaskBalancer):
    """The simpler rule of the source: each weight times (mean norm / norm)^alpha, then normalised.

    Norms are those of weighted gradients, so that a balanced task keeps its weight; with norms before the weights, as
    the source has them, a task whose gradient is smaller grows without end. It knows no training rates, and has no
    optimizer: where ``alpha`` is 2 or more it does not settle.

    Args:
        initial_weights: of each task; a task that is not named weighs 1.
        alpha: above 0 and below 2: 1 makes norms alike at once, less more slowly.
        every: steps from one look at gradient norms to the next.
        shared_layer: name of the module at whose weights gradients are looked at.
        least_weight: no weight is below it.

    Raises:
        InputError: ``alpha`` is beyond these bounds.
    """

    def __init__(
        self,
        initial_weights: Mapping[str, float] | None = None,
        alpha: float = 0.5,
        *,
        every: int = 5,
        shared_layer: str | None = None,
        least_weight: float = LEAST_WEIGHT,
    ) -> None:
        if not 0 < alpha < 2:
            raise InputError(f"alpha of NormRatioBalancer is above 0 and below 2, got {alpha}: it would not settle")
        self.alpha = alpha
        super().__init__(initial_weights, every=every, shared_layer=shared_layer, least_weight=least_weight)

    def see_losses(self, losses: Mapping[str, float], samples: Mapping[str, int]) -> None:
        """Take in a step: this rule knows no losses."""

    def update(self, norms: Mapping[str, float]) -> None:
        """Change the weights by gradient norms; norms that are not finite change nothing."""
        if not norms or not all(math.isfinite(norm) for norm in norms.values()):
            return
        weighted = {task: self.weights[task] * max(TINY, norm) for task, norm in norms.items()}
        mean = math.fsum(weighted.values()) / len(weighted)
        self.factors = {task: norm / mean for task, norm in weighted.items()}
        changed = {task: self.weights[task] * (mean / norm) ** self.alpha for task, norm in weighted.items()}
        self.weights = normalized({**self.weights, **changed}, self._least)
