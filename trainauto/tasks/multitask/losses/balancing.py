"""Weights of tasks that follow their gradients: what every rule for them has in common."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainauto.core.errors import InputError, Problem, nearest

logger = logging.getLogger(__name__)

LEAST_WEIGHT = 1e-3
"""Of a task: one of weight 0 would have no gradient any more, by which its weight could rise again."""


class TaskBalancer(ABC):
    """Changes weights of tasks by the norms of their gradients at weights that they share.

    It sees the losses of every step, and gradient norms every so many steps. The norm of a task is that of the gradient
    of its mean loss over the step's samples of it, before its weight. How many samples of a task a step has is no part
    of it, and it is the same in whatever parts the step ran.

    Attributes:
        weights: of each task; together as many as there are tasks.
        every: steps from one look at gradient norms to the next.
        shared_layer: name of the module at whose weights gradients are looked at; ``None`` takes the last that all
            tasks train.
        factors: at the last look, each task's weighted norm over the one it is steered to; 1 is balanced.

    Args:
        initial_weights: of each task; a task that is not named weighs 1.
        every: see above.
        shared_layer: see above.
        least_weight: no weight is below it.

    Raises:
        InputError: a weight is not above 0, or a number of steps below 1.
    """

    def __init__(
        self,
        initial_weights: Mapping[str, float] | None = None,
        *,
        every: int = 5,
        shared_layer: str | None = None,
        least_weight: float = LEAST_WEIGHT,
    ) -> None:
        if every < 1:
            raise InputError(f"gradient norms are looked at every so many steps, 1 or more, got {every}")
        self.every = every
        self.shared_layer = shared_layer
        self._initial = dict(initial_weights or {})
        check_weights(self._initial)
        self._least = least_weight
        self.weights: dict[str, float] = dict(self._initial)
        self.factors: dict[str, float] = {}
        self.begin(self._initial)

    def begin(self, tasks: Iterable[str]) -> None:
        """Begin with these tasks: those of the samples at hand.

        Weights of others are left out, so that those that are there sum to their number.
        """
        self.weights = normalized({task: self._initial.get(task, 1.0) for task in tasks}, self._least)
        self.factors = {}

    def is_due(self, step: int) -> bool:
        """Whether gradient norms are looked at in a step, numbered from 0."""
        return step % self.every == 0

    @abstractmethod
    def see_losses(self, losses: Mapping[str, float], samples: Mapping[str, int]) -> None:
        """Take in a step.

        Args:
            losses: mean loss of each task that the step had samples of, without its weight.
            samples: how many.
        """

    @abstractmethod
    def update(self, norms: Mapping[str, float]) -> None:
        """Change the weights by gradient norms; see the class for what they are.

        Args:
            norms: of the tasks that the step had samples of.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {"rule": type(self).__name__, "weights": dict(self.weights), "factors": dict(self.factors)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what :meth:`state_dict` returned.

        Raises:
            InputError: it is of another rule, or of other tasks.
        """
        if state["rule"] != type(self).__name__:
            raise InputError(
                f"the checkpoint's weights of tasks follow {state['rule']}, not {type(self).__name__}: resume with that"
            )
        missing = sorted(state["weights"].keys() ^ self.weights.keys())
        if missing:
            raise InputError(
                f"the checkpoint is of other tasks ({', '.join(missing)} on one side only): resume with its dataset"
            )
        self.weights = {task: state["weights"][task] for task in self.weights}
        self.factors = dict(state["factors"])


def check_weights(weights: Mapping[str, float]) -> None:
    """Refuse weights that are none.

    Raises:
        InputError: one is not above 0.
    """
    wrong = [f"{task} {weight!r}" for task, weight in weights.items() if not 0 < weight < float("inf")]
    if wrong:
        raise InputError(f"weights of tasks are numbers above 0, got {', '.join(wrong)}: leave samples of a task out")


def check_tasks(what: str, named: Iterable[str], tasks: Sequence[str]) -> None:
    """Refuse names of tasks of which there are no samples, where they may be meant for tasks that are not named.

    Where all tasks of samples are named, the others belong to samples that this set lacks: they are left out, with a
    warning.

    Args:
        what: that names them.
        named: there.
        tasks: those that samples have.

    Raises:
        InputError: each, with the nearest task.
    """
    named = list(named)
    strange = [task for task in named if task not in tasks]
    if strange and set(tasks) <= set(named):
        logger.warning("%s names %s, of which there are no samples: left out", what, ", ".join(strange))
    elif strange:
        raise InputError(
            [
                Problem(f"{what} names the task '{task}', of which there are no samples", advice=nearest(task, tasks))
                for task in strange
            ]
        )


def normalized(weights: Mapping[str, float], least: float) -> dict[str, float]:
    """Return weights, none below ``least``, that sum to their number."""
    scale = len(weights) / sum(weights.values()) if weights else 1.0
    raised = {task: max(least, weight * scale) for task, weight in weights.items()}
    # What the raised ones take is taken from those above the floor, in proportion to what they have above it.
    excess = sum(raised.values()) - len(raised)
    room = sum(weight - least for weight in raised.values())
    share = 1 - excess / room if room > 0 else 1.0
    return {task: least + (weight - least) * share for task, weight in raised.items()}
