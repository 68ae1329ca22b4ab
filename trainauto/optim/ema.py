"""Exponential moving average of weights."""

from copy import deepcopy

import torch
from torch import Tensor, nn


class Ema:
    """A copy of a network that follows it slowly: ``average += (1 - decay) * (weight - average)`` after every step.

    Buffers and weights that are not floating point are copied as they are.

    Args:
        network: the network to follow, before it is compiled or wrapped.
        decay: share of the average that a step keeps, in [0, 1).
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
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
            torch._foreach_lerp_(averages, weights, 1.0 - self.decay**share)
            self._weights_done = True
        for average, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            average.copy_(buffer)
        self._weights_done = False
