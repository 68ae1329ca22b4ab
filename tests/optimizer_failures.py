"""Optimizers that run out of memory: at one of the operators of their step, by an error of torch's own allocator."""

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


class FailsAt(TorchDispatchMode):
    """Runs out of memory at one operator, before it writes anything; ``again``: at every one from there on."""

    def __init__(self, place: int, *, again: bool = False) -> None:
        super().__init__()
        self.place, self.seen, self.again = place, 0, again

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        if self.counts() and (self.seen == self.place or (self.again and self.seen > self.place)):
            with _disable_current_modes():
                torch.empty(2**60, dtype=torch.uint8)
        return function(*args, **(kwargs or {}))

    def counts(self) -> bool:
        """Whether operators are looked at now."""
        return True


class FailsInOptimizer(FailsAt):
    """The same of operators within an optimizer's step."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self._steps = 0

    def __enter__(self) -> Any:
        self._handles = (
            register_optimizer_step_pre_hook(self._begins),
            register_optimizer_step_post_hook(self._ends),
        )
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        for handle in self._handles:
            handle.remove()
        return super().__exit__(*error)

    def _begins(self, *_: Any) -> None:
        self._steps, self.seen = self._steps + 1, 0 if not self._steps else self.seen

    def _ends(self, *_: Any) -> None:
        self._steps = -1

    def counts(self) -> bool:
        """Whether the first step of an optimizer is under way."""
        return self._steps == 1
