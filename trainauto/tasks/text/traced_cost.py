"""What a batch of texts takes in bytes, by traces of the model at hand."""

from collections.abc import Callable
from math import exp, hypot, sqrt

import numpy as np
from torch import nn

from trainauto.data.packing import IntArray
from trainauto.memory.cost.moments import Moments, moments_of
from trainauto.memory.cost.ratio_prior import PLAIN, student4
from trainauto.memory.tracing.live_module import LiveModuleTracer
from trainauto.memory.tracing.trace import Trace
from trainauto.tasks.text.generation_trace import Generation, GenerationTracer

SHORT = 8
"""Tokens of the shortest trace: below, sizes of 1 let operators leave work out."""


class TracedCost:
    """Bytes that a batch takes at its peak, beside what is held whatever the batch is.

    Exact where the model does the same for every size of batch, see ``memory/cost/moments.py``. Of a generation it is
    the most that can be: every text gets as many new tokens as it may.

    Attributes:
        held_bytes: what is held beside batches: weights, and the optimizer's state where one steps.

    Args:
        moments: of the model's step.
        held_bytes: see above.
    """

    unit = "bytes"

    def __init__(self, moments: Moments, held_bytes: int) -> None:
        self.moments, self.held_bytes = moments, held_bytes

    @classmethod
    def of_generation(cls, model: nn.Module, generation: Generation, longest_tokens: int) -> "TracedCost":
        """Trace a model's ``generate`` seven times; the model stays as it is.

        Args:
            model: as for :class:`~trainauto.tasks.text.generation_trace.GenerationTracer`.
            generation: how texts are generated.
            longest_tokens: length of the longest text.

        Raises:
            TraceError: the model cannot be traced.
        """
        tracer = GenerationTracer(model, generation)
        return cls._fitted(lambda b, s: tuple(tracer.trace(b, s)), tracer.held_bytes, longest_tokens)

    @classmethod
    def of_step(cls, tracer: LiveModuleTracer, longest_tokens: int) -> "TracedCost":
        """Trace a step seven times: of training, or of any other use of a model.

        Args:
            tracer: of the step.
            longest_tokens: length of the longest text.

        Raises:
            TraceError: the step cannot be traced.
        """
        held_bytes = tracer.trace(2, SHORT).held_bytes
        return cls._fitted(lambda b, s: (tracer.trace(b, s),), held_bytes, longest_tokens)

    @classmethod
    def _fitted(
        cls, trace: Callable[[int, int], tuple[Trace, ...]], held_bytes: int, longest_tokens: int
    ) -> "TracedCost":
        lengths = (SHORT, max(longest_tokens // 2, 2 * SHORT), max(longest_tokens, 3 * SHORT))
        sizes = [(samples, length) for samples in (2, 5) for length in lengths]
        sizes.append((7, (lengths[0] + lengths[2]) // 2))
        return cls(moments_of({size: trace(*size) for size in sizes}, held_bytes), held_bytes)

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the bytes of padded batches; images are ignored."""
        del images
        whole: IntArray = np.ceil(self.moments.bytes(samples, np.asarray(longest)) - 0.01).astype(np.int64)
        return whole

    def margin(self, probability: float) -> float:
        """Return how far a batch's bytes, relative to another's, may lie above the traced relation.

        It is what torch's allocator and kernels add to live bytes, which differs from batch to batch, and what the form
        of the cost misses. The probability is that of a step that does what was traced; texts that end early make the
        batch that a bound was measured with smaller, and it is the caller who must not bound by such a one.
        """
        return (1 + self.moments.residual) * allocator_margin(probability)


def allocator_margin(probability: float) -> float:
    """Return the factor by which two batches' bytes relate otherwise than their live bytes, with this probability.

    Raises:
        ValueError: that is no probability.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies between 0 and 1, got {probability}")
    return max(1.0, exp(student4(1 - probability) * sqrt(2) * hypot(PLAIN.own, PLAIN.local)))
