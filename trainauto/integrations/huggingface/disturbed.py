"""A model that gives other outputs for other samples: one that has learned nothing does not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainauto.memory.monitor.oom import is_out_of_memory

FACTORS = (1.0, 4.0, 16.0)
"""By what weights are multiplied where losses agree, as those of a fresh head do: first by as little as will do."""


@contextmanager
def disturbed(module: nn.Module, factor: float) -> Iterator[bool]:
    """Have a model give other outputs for other samples; say whether there was memory for a copy of its weights.

    Those it trains get noise of the size that layers begin with, and are multiplied.
    """
    weights = [weight for weight in module.parameters() if weight.requires_grad and weight.ndim > 1]
    kept: list[Tensor] = []
    try:
        kept += [weight.detach().clone() for weight in weights]
        generator = torch.Generator(weights[0].device).manual_seed(0) if weights else None
        with torch.no_grad():
            for weight in weights:
                size = (weight.shape[0] / weight.numel()) ** 0.5
                weight.add_(torch.empty_like(weight).normal_(0, size, generator=generator)).mul_(factor)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        _put_back(weights, kept)
        yield False
        return
    try:
        yield True
    finally:
        _put_back(weights, kept)


def _put_back(weights: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for weight, copy in zip(weights, kept, strict=False):
            weight.copy_(copy)
