"""An optimizer's own step: run again where it ran out of memory before it wrote anything, else the end of the run.

A step changes a few weights after another. One that fails among them leaves a mixture of two steps, which no later step
repairs and no checkpoint may hold. What fails before that is the state that a step makes, above all the first one. It
is then let go of, and the step runs again in the form that takes one weight after another, whose temporaries are those
of the largest weight.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.core.objectives import Objective
from trainauto.engine.optimizer_form import take_loop_form, takes_all_at_once
from trainauto.engine.optimizer_state import steps_as_known
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.memory.monitor.oom import in_words, shortage_in
from trainauto.memory.monitor.release import release_memory, repeatable

logger = logging.getLogger(__name__)

STEP = "step"
"""The count that torch's optimizers keep for each weight, and raise by one before anything else."""

WEIGHT, GRADIENT = "weight", "gradient"

T = TypeVar("T")


def step_optimizer(objective: Objective, device: torch.device, *, may_change_form: bool = True) -> bool:
    """Step the optimizer of a pass; say whether the weights changed, which float16 gradients that overflow prevent.

    Args:
        objective: the pass.
        device: where its memory is.
        may_change_form: whether a second attempt may take one weight after another, which rounds differently: not
            where other ranks took their step in the usual form.

    Raises:
        OptimizerOutOfMemoryError: memory ran out, and some weights may have changed.
    """
    scaler, optimizer = objective.scaler, objective.optimizer
    if scaler is None:
        stepping(optimizer, optimizer.step, objective.name, device, may_change_form=may_change_form)
        return True
    factor = repeated_in_step(scaler.get_scale, objective.name, device)
    stepping(optimizer, lambda: scaler.step(optimizer), objective.name, device, may_change_form=may_change_form)
    # The last operator of an update alone writes.
    repeated_in_step(scaler.update, objective.name, device, is_whole=False)
    return repeated_in_step(scaler.get_scale, objective.name, device, is_whole=False) >= factor


def stepping(
    optimizer: Optimizer,
    step: Callable[[], Any],
    pass_name: str,
    device: torch.device,
    *,
    may_change_form: bool = True,
) -> Any:
    """Call what steps an optimizer, once more where the first call wrote nothing; return what it returned.

    Raises:
        OptimizerOutOfMemoryError: memory ran out, and some weights may have changed.
    """
    look = partial(StepMarks.of, optimizer)
    marks = repeated_in_step(look, pass_name, device) if steps_as_known(optimizer) else None
    try:
        return step()
    except (RuntimeError, MemoryError) as error:
        message = shortage_in(error)
    # Outside the handler: the error's traceback holds the temporaries of the failed attempt.
    if marks is None or not marks.put_back(optimizer):
        raise OptimizerOutOfMemoryError(pass_name, message)
    release_memory(device)
    changed = may_change_form and take_loop_form([optimizer])
    logger.warning(
        "out of memory in the step of optimizer '%s' (%s) before it wrote anything: the step runs again%s",
        pass_name,
        in_words(message),
        ", and from now on one weight after another (foreach=False)" if changed else "",
    )
    marks = repeated_in_step(look, pass_name, device)
    try:
        return step()
    except (RuntimeError, MemoryError) as error:
        message = shortage_in(error)
    raise OptimizerOutOfMemoryError(pass_name, message, is_whole=marks.put_back(optimizer))


def repeated_in_step(call: Callable[[], T], pass_name: str, device: torch.device, *, is_whole: bool = True) -> T:
    """Call what may be called again where memory runs out in it, around the step of an optimizer.

    Args:
        call: leaves everything as it was where it fails.
        pass_name: whose optimizer.
        device: where its memory is.
        is_whole: whether the step has changed no weight so far.

    Raises:
        OptimizerOutOfMemoryError: memory ran out twice.
    """
    try:
        return repeatable(call, device)
    except (RuntimeError, MemoryError) as error:
        message = shortage_in(error)
    raise OptimizerOutOfMemoryError(pass_name, message, is_whole=is_whole)


@dataclass(frozen=True)
class _GroupMarks:
    """What an optimizer knew of the first weight of a group before a step.

    Attributes:
        group: of which.
        first: its first weight with a gradient.
        count: how often that was stepped, where all weights are at once; 0 where nothing counts it.
        contents: itself, its gradient and its state, with the versions of tensors.
    """

    group: Mapping[str, Any]
    first: Tensor
    count: Any
    contents: Mapping[str, tuple[Any, int]]

    @classmethod
    def of(cls, group: Mapping[str, Any], first: Tensor, state: Mapping[str, Any]) -> "_GroupMarks":
        count = state.get(STEP, 0)
        contents = {name: (value, _version_of(value)) for name, value in _contents(first, state).items()}
        if isinstance(count, Tensor) and takes_all_at_once(group):
            count = count.clone()
        return cls(group, first, count, contents)

    @property
    def is_new(self) -> bool:
        """Whether the optimizer knew nothing of it."""
        return self.contents.keys() <= {WEIGHT, GRADIENT}

    def changed(self, state: Mapping[str, Any]) -> set[str]:
        """Name what has changed since."""
        now = _contents(self.first, state)
        return {name for name in self.contents.keys() | now.keys() if self._differs(name, now)}

    def _differs(self, name: str, now: Mapping[str, Any]) -> bool:
        if name not in self.contents or name not in now:
            return True
        (value, version), other = self.contents[name], now[name]
        if isinstance(value, Tensor):
            return other is not value or other._version != version
        return bool(other != value)


def _contents(weight: Tensor, state: Mapping[str, Any]) -> dict[str, Any]:
    return {**state, WEIGHT: weight, GRADIENT: weight.grad}


def _version_of(value: Any) -> int:
    return value._version if isinstance(value, Tensor) else 0


@dataclass(frozen=True)
class StepMarks:
    """What tells afterwards whether a step wrote anything, in less than a hundredth of its time.

    Torch's optimizers take the groups in their order. One after another, the weights of a group are changed in order,
    by operators that raise versions: where the first one and its state have none raised, nothing was written. All at
    once, kernels raise no versions on a GPU, but the count of steps is raised before anything else. SGD keeps none
    there.

    Attributes:
        states: how many weights state was kept of.
        groups: those that have gradients.
    """

    states: int
    groups: tuple[_GroupMarks, ...]

    @classmethod
    def of(cls, optimizer: Optimizer) -> "StepMarks":
        """Look at an optimizer of torch's or transformers' that is about to step."""
        groups, state = [], optimizer.state
        for group in optimizer.param_groups:
            first = next((weight for weight in group["params"] if weight.grad is not None), None)
            if first is not None:  # not state[first]: asking would make an entry
                groups.append(_GroupMarks.of(group, first, state.get(first, {})))
        return cls(len(state), tuple(groups))

    def put_back(self, optimizer: Optimizer) -> bool:
        """Undo what a failed step has begun; say whether everything is known to be as before it.

        Of other libraries' optimizers, weights spread over ranks, and steps with hooks of their own that is not known.
        """
        if not steps_as_known(optimizer) or optimizer._optimizer_step_pre_hooks:
            return False
        made = list(optimizer.state)[self.states :]
        if not all(self._is_untouched(optimizer, marks, made) for marks in self.groups):
            return False
        for weight in made:  # the step had begun with it, and begins with it anew
            del optimizer.state[weight]
        for marks in self.groups:
            if not takes_all_at_once(marks.group) and STEP in marks.changed(optimizer.state.get(marks.first, {})):
                optimizer.state[marks.first][STEP] -= 1
        return True

    @staticmethod
    def _is_untouched(optimizer: Optimizer, marks: _GroupMarks, made: list[Tensor]) -> bool:
        state = optimizer.state.get(marks.first, {})
        if type(marks.first) not in (Tensor, nn.Parameter):
            return False
        changed = marks.changed(state)
        if not takes_all_at_once(marks.group):
            return WEIGHT not in changed and (marks.is_new or changed <= {STEP})
        weights = [weight for weight in marks.group["params"] if weight.grad is not None]
        # Weights of several kinds are taken kind after kind, in no order that is promised.
        is_alike = marks.is_new or len({(weight.device, weight.dtype) for weight in weights}) == 1
        counts = (optimizer.state[weight].get(STEP, 0) for weight in made)
        is_counted = not isinstance(optimizer, torch.optim.SGD)
        is_as_before = WEIGHT not in changed and bool(state.get(STEP, 0) == marks.count)
        return is_counted and is_alike and is_as_before and not any(map(bool, counts))
