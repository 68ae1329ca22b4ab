"""What a batch of samples of several kinds takes, padded to its longest text and its most images."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trainauto.core.errors import InputError, Problem
from trainauto.data.packing import BatchCost, IntArray
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor


@dataclass(frozen=True)
class PaddedUnits:
    """Padded tokens, where an image counts as so many: what batches are bounded by where bytes are unknown.

    Attributes:
        tokens_per_image: such as the patches that a model cuts an image into.
    """

    tokens_per_image: int

    def __post_init__(self) -> None:
        if self.tokens_per_image < 0:
            raise InputError(f"an image cannot count as {self.tokens_per_image} tokens")

    @property
    def unit(self) -> str:
        """Tokens."""
        return "tokens"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the padded tokens and images of batches; a sample with neither counts as 1."""
        padded: IntArray = np.maximum(samples * longest + images * self.tokens_per_image, samples)
        return padded


@dataclass(frozen=True)
class BesideHeld:
    """Bytes of everything: of a batch, and of what is held between steps (weights, the optimizer's state).

    Attributes:
        of_batches: what batches take beside that.
        held_bytes: what is held.
    """

    of_batches: BatchCost
    held_bytes: int

    @property
    def unit(self) -> str:
        """Bytes."""
        return "bytes"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the bytes of batches."""
        return self.held_bytes + self.of_batches.cost(samples, longest, images)


def cost_in_bytes(predictor: Any) -> BatchCost:
    """Return what prices batches in bytes, with what a predictor says is held between steps.

    Args:
        predictor: a ``MemoryPredictor`` or another :class:`~trainauto.data.packing.BatchCost` in bytes; ``None``: the
            published constants, which the log says.

    Raises:
        InputError: it does not price batches in bytes.
    """
    if predictor is None:
        return MemoryPredictor("cpu").as_cost()
    if isinstance(predictor, type) or not callable(getattr(predictor, "cost", None)):
        shown = f"the class {predictor.__name__}" if isinstance(predictor, type) else type(predictor).__name__
        advice = "Give a MemoryPredictor(device, model=...), or an object with cost(samples, longest, images)."
        raise InputError(Problem(f"predictor: {shown} does not say what batches cost", advice=advice))
    if predictor.unit != "bytes":
        raise InputError(f"predictor: it prices batches in {predictor.unit}, but memory is counted in bytes")
    held_bytes = int(getattr(predictor, "held_bytes", 0))
    return BesideHeld(predictor, held_bytes) if held_bytes else predictor


def padded_costs(cost: BatchCost, samples: IntArray, longest: IntArray, most_images: IntArray) -> IntArray:
    """Return what batches cost as the collator makes them: every sample has room for the most images of one.

    Args:
        cost: its ``images`` are those of a whole batch, padding included.
        samples: of each batch.
        longest: tokens of its longest sample.
        most_images: images of its sample that has most.
    """
    return cost.cost(samples, longest, samples * most_images)
