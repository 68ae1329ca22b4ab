"""What a batch of texts takes in bytes, by two measured steps: where no trace is to be had."""

from collections.abc import Callable

import numpy as np

from trainauto.core.errors import InputError
from trainauto.data.packing import BatchCost, IntArray, TokenCost
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.release import release_memory
from trainauto.tasks.text.traced_cost import allocator_margin

SMALLER, LARGER = (2, 32), (4, 128)
"""Texts and tokens of the steps that are measured: eight times as many tokens in the larger, and both small."""


class MeasuredCost:
    """Bytes that a batch takes beside what is held, linear in another cost.

    For modules that cannot be traced in this process: compiled ones, steps under CUDA autocast. Two steps say nothing
    of how far a third may be off, so that the margin is that of allocators alone.

    Measured anew, the figures differ by noise, and so do bounds and batches: a saved position of a loader goes with the
    cost that it was made under. Save ``constant_bytes`` and ``bytes_per_unit`` beside it, and resume with
    ``MeasuredCost(base, constant_bytes, bytes_per_unit)``.

    Attributes:
        base: what bytes follow.
        constant_bytes: what a batch takes whatever it holds, a plain number.
        bytes_per_unit: what each unit of ``base`` takes, a plain number.

    Args:
        base: see above.
        constant_bytes: see above.
        bytes_per_unit: see above.
    """

    unit = "bytes"

    def __init__(self, base: BatchCost, constant_bytes: float, bytes_per_unit: float) -> None:
        self.base, self.constant_bytes, self.bytes_per_unit = base, constant_bytes, bytes_per_unit

    @classmethod
    def of_steps(
        cls,
        step: Callable[[int, int], object],
        base: BatchCost | None = None,
        *,
        smaller: tuple[int, int] = SMALLER,
        larger: tuple[int, int] = LARGER,
    ) -> "MeasuredCost":
        """Measure two steps, each after one of its kind that leaves behind what libraries and optimizers keep.

        Args:
            step: runs a batch of so many texts of so many tokens.
            base: what bytes follow; padded tokens where none is given.
            smaller: texts and tokens of one step.
            larger: of the other.

        Raises:
            InputError: nothing can be measured here, or the larger step took no more than the smaller one.
        """
        base = base or TokenCost()
        meter = MemoryMeter.of_this_process()
        if meter.device.type == "cpu":
            budget.calm_allocator()  # else what was freed is filled again without being seen
        meter.set_baseline()
        peaks = [_measured(step, meter, *shape) for shape in (smaller, larger)]
        costs = [int(base.cost(*(np.array([size]) for size in (*shape, 0)))[0]) for shape in (smaller, larger)]
        if costs[1] <= costs[0] or peaks[1] <= peaks[0]:
            raise InputError(
                f"two steps of {smaller} and {larger} texts and tokens took {peaks[0]} and {peaks[1]} bytes: "
                "measure larger ones that differ more (smaller=(texts, tokens), larger=(texts, tokens))"
            )
        slope = (peaks[1] - peaks[0]) / (costs[1] - costs[0])
        constant = peaks[0] - slope * costs[0]
        # Through the larger one where the line would begin below nothing: bytes may grow faster than the other cost.
        return cls(base, constant, slope) if constant >= 0 else cls(base, 0.0, peaks[1] / costs[1])

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the bytes of padded batches."""
        bytes_ = self.constant_bytes + self.bytes_per_unit * self.base.cost(samples, longest, images)
        whole: IntArray = np.ceil(bytes_).astype(np.int64)
        return whole

    def margin(self, probability: float) -> float:
        """Return how far a batch's bytes, relative to another's, may lie above the prediction."""
        return allocator_margin(probability)


def _measured(step: Callable[[int, int], object], meter: MemoryMeter, samples: int, tokens: int) -> int:
    """Return the bytes that the second of two equal steps takes beside what is held before it."""
    step(samples, tokens)
    release_memory(meter.device)  # what a heap keeps free would be filled first, and not be seen
    held_bytes = meter.now_bytes()
    with meter.window() as window:
        step(samples, tokens)
    if window.reading is None:
        raise InputError("this platform does not tell how much memory a step takes")
    return window.reading.allocated - held_bytes
