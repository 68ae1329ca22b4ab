"""What a pass may change before its optimizer steps, so that it can be run again as if it had never begun."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class StepSnapshot:
    """Random generators and buffers as they were when a pass began.

    Gradients need no copy: they are zeroed. Weights need none: only the optimizer's step changes them, and it comes
    after everything that allocates in proportion to the batch. Of the buffers only those are copied that the first step
    changed (batch statistics); their versions do not tell, since kernels write them directly.

    Attributes:
        on_restore: called when a moment is restored, by whoever has noted figures of the pass since.

    Args:
        networks: the networks of the model.
        device: where they are.
    """

    def __init__(self, networks: Iterable[nn.Module], device: torch.device) -> None:
        self._networks = list(networks)
        self._device = device
        self._changing: dict[int, Tensor] = {}
        self._is_known = False
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._random: tuple[Any, Any] = (None, None)
        self.on_restore: Callable[[], None] | None = None

    def take(self) -> None:
        """Remember this moment."""
        # To walk through a network for its buffers takes as long as small kernels do: that is for the first step.
        wanted = self._changing.values() if self._is_known else (b for n in self._networks for b in n.buffers())
        self._copies = [(buffer, buffer.detach().clone()) for buffer in wanted]
        on_cuda = self._device.type == "cuda"
        self._random = (torch.get_rng_state(), torch.cuda.get_rng_state(self._device) if on_cuda else None)

    def commit_pass(self) -> None:
        """Note what has changed since: the pass stays."""
        if not self._is_known:
            changed = [buffer for buffer, copy in self._copies if not torch.equal(buffer, copy)]
            self._changing |= {id(buffer): buffer for buffer in changed}

    def commit_step(self) -> None:
        """All passes of a step have stayed: what has not changed by now never will."""
        self._is_known = True

    def changing(self) -> list[Tensor]:
        """Return the buffers that passes change, as far as is known yet."""
        return [buffer for buffer, _ in self._copies]

    def restore(self) -> None:
        """Restore that moment."""
        with torch.no_grad():
            for buffer, copy in self._copies:
                buffer.copy_(copy)
        torch.set_rng_state(self._random[0])
        if self._random[1] is not None:  # pragma: no cuda
            torch.cuda.set_rng_state(self._random[1], self._device)
        if self.on_restore is not None:
            self.on_restore()
