"""Which part of a training step runs now, seen from outside: torch's own hooks tell, the step says nothing."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

FORWARD, BACKWARD, OPTIMIZER, OTHER = "forward", "backward", "optimizer", "other"
PHASES = (FORWARD, BACKWARD, OPTIMIZER, OTHER)


class PhaseWatch:
    """The phase of the step that runs in this process, while :meth:`watching`.

    A step begins with ``forward``. What follows a backward pass or an optimizer is ``other`` (reading losses, clipping,
    averages) until the next module is called, that of the next micro-batch or pass. What a checkpointed network
    computes again belongs to ``backward``.

    Attributes:
        optimizers: those that have begun a step since the watch began, in order.
        running: modules that compute, the innermost last.
    """

    def __init__(self) -> None:
        self._outside_backward = FORWARD
        self.running: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []

    def now(self) -> str:
        """Return the phase of this moment."""
        if torch._C._current_graph_task_id() != -1:
            self._outside_backward = OTHER
            return BACKWARD
        return self._outside_backward

    def runs_module(self) -> bool:
        """Say whether a module runs: forward, or what backward computes again."""
        return bool(self.running) or torch._C._current_graph_task_id() != -1

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch one step."""
        self._outside_backward, self.running, self.optimizers = FORWARD, [], []
        with ExitStack() as hooks:
            for handle in (
                register_module_forward_pre_hook(self._module_begins),
                register_module_forward_hook(self._module_ends, always_call=True),
                register_optimizer_step_pre_hook(self._optimizer_begins),
                register_optimizer_step_post_hook(self._optimizer_ends),
            ):
                hooks.callback(handle.remove)
            yield

    def _module_begins(self, module: nn.Module, _arguments: Any) -> None:
        self.running.append(module)
        if self._outside_backward == OTHER and torch._C._current_graph_task_id() == -1:
            self._outside_backward = FORWARD

    def _module_ends(self, *_: Any) -> None:
        if self.running:  # torch calls it for a module whose call was refused by a hook before it began, too
            self.running.pop()

    def _optimizer_begins(self, optimizer: Optimizer, *_: Any) -> None:
        self._outside_backward = OPTIMIZER
        self.optimizers.append(optimizer)

    def _optimizer_ends(self, *_: Any) -> None:
        self._outside_backward = OTHER
