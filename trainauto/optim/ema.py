"""Exponential moving average of weights."""

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Averaging:
    """How an average begins, and what it gives back, in the terms of ema_pytorch, which traiNNer-redux uses.

    Attributes:
        power: in step ``k`` after the copies the average keeps no more than ``1 - (1 + k) ** -power`` of itself, which
            rises to ``decay``; ``None`` where it keeps ``decay`` from the first step on.
        copies_until: up to this step the average is a copy of the weights.
        returns_every: after so many steps, again and again, the weights become the average; 0 is never.
        of_optimizer: the average is that of a schedule-free optimizer, which has no decay and begins by itself.
    """

    power: float | None = None
    copies_until: int = 0
    returns_every: int = 0
    of_optimizer: bool = False


PLAIN = Averaging()


class Ema:
    """A copy of a network that follows it slowly: ``average += (1 - decay) * (weight - average)`` after every step.

    Buffers and weights that are not floating point are copied as they are.

    Attributes:
        updates: steps that it has followed.

    Args:
        network: the network to follow, before it is compiled or wrapped.
        decay: share of the average that a step keeps, in [0, 1).
        averaging: how it begins, and what it gives back.
    """

    def __init__(self, network: nn.Module, decay: float, averaging: Averaging = PLAIN) -> None:
        self.decay, self.updates, self._averaging = decay, 0, averaging
        self.network = deepcopy(network).eval().requires_grad_(False)
        self._weights_done = False

    @torch.no_grad()
    def update(self, network: nn.Module, share: float = 1.0) -> None:
        """Take one step towards ``network``; ``share`` says how many steps it counts as, see ``BatchScaling``.

        If it runs out of memory, a second call continues with what the first has not done: no weight moves twice.
        """
        averages: list[Tensor] = list(self.network.parameters())
        weights = [parameter.detach() for parameter in network.parameters()]
        if not self._weights_done:
            torch._foreach_lerp_(averages, weights, 1.0 - self.decay_now() ** share)
            self._weights_done = True
        for average, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            average.copy_(buffer)
        self._weights_done = False
        self.updates += 1

    def decay_now(self) -> float:
        """Return the share of the average that the next step keeps."""
        begins = self._averaging
        if begins.power is None and not begins.copies_until:
            return self.decay
        step = self.updates - begins.copies_until
        if step <= 0:
            return 0.0
        return self.decay if begins.power is None else min(self.decay, 1.0 - (1.0 + step) ** -begins.power)

    @torch.no_grad()
    def return_if_due(self, network: nn.Module) -> None:
        """Have the weights of ``network`` be the average after the steps in which that is due."""
        every, step = self._averaging.returns_every, self.updates - 1
        if every and step > 0 and step % every == 0:
            for weight, average in zip(network.parameters(), self.network.parameters(), strict=True):
                weight.copy_(average)
