"""Steps that stay what they are when memory changes how they are computed: weights of parts, passes, rates."""

import math
from collections.abc import Sequence

from trainauto.core.errors import InputError


def accumulation_steps(target_samples: int, forward_samples: int) -> int:
    """Return in how many passes a step runs: rounded up, for rounded down it would train fewer samples than asked for.

    Args:
        target_samples: samples of the step.
        forward_samples: most samples of a pass.

    Raises:
        ValueError: one of them is below 1.
    """
    if target_samples < 1 or forward_samples < 1:
        raise ValueError(f"a step of {target_samples} samples in passes of {forward_samples}: both are at least 1")
    return math.ceil(target_samples / forward_samples)


def share_of_step(samples: int, step_samples: int) -> float:
    """Return what the mean loss of a part counts in the step's: n_i / N.

    Summed over parts of any sizes these are 1, so that their gradients add up to the gradient of the whole.
    """
    return samples / step_samples


def scaled_rate(rate: float, step_samples: float, reference_samples: float) -> float:
    """Return a learning rate for steps of another size: by the root of how much larger they are.

    With Adam and its like, the noise of a step falls by the root of its samples (Malladi et al. 2022, "On the SDEs and
    Scaling Rules for Adaptive Gradient Algorithms").

    Args:
        rate: for steps of ``reference_samples``.
        step_samples: samples that steps have now, in all their passes.
        reference_samples: samples that the rate was written for.
    """
    return rate * math.sqrt(step_samples / reference_samples)


class EffectiveBatchSizeNormalizer:
    """What keeps a step's effect the same, whatever fits into memory.

    It changes no memory, and nothing by itself: a Trainer asks it for passes, weights and rates.

    Args:
        base_batch_size: samples of a forward pass to begin with.
        target_batch_size: samples of a step.
        base_learning_rate: for steps of ``reference_batch_size``.
        reference_batch_size: samples of a step that the rate was written for; those of a step where it is ``None``.

    Raises:
        InputError: a number is not above 0, or a step is smaller than a pass.
    """

    def __init__(
        self,
        base_batch_size: int = 16,
        target_batch_size: int = 32,
        base_learning_rate: float = 5e-5,
        *,
        reference_batch_size: int | None = None,
    ) -> None:
        if base_batch_size < 1 or base_learning_rate <= 0 or (reference_batch_size or 1) < 1:
            raise InputError("batch sizes are 1 or more, and rates above 0")
        if target_batch_size < base_batch_size:
            raise InputError(
                f"a step of target_batch_size={target_batch_size} is smaller than one forward pass of "
                f"base_batch_size={base_batch_size}: take a smaller pass, or a larger step"
            )
        self.base_batch_size = base_batch_size
        self.target_batch_size = target_batch_size
        self.base_learning_rate = base_learning_rate
        self.reference_batch_size = reference_batch_size or target_batch_size

    def accumulation_steps(self, forward_samples: int | None = None) -> int:
        """Return the passes of a step; see :func:`accumulation_steps`.

        Args:
            forward_samples: most samples of a pass; ``base_batch_size`` where it is ``None``.
        """
        return accumulation_steps(self.target_batch_size, forward_samples or self.base_batch_size)

    def weights(self, part_samples: Sequence[int]) -> tuple[float, ...]:
        """Return what the mean loss of each part of a step counts; see :func:`share_of_step`."""
        whole = sum(part_samples)
        return tuple(share_of_step(samples, whole) for samples in part_samples)

    def learning_rate(self, step_samples: float) -> float:
        """Return the rate for steps of so many samples in all their passes; see :func:`scaled_rate`.

        Other passes of as many samples leave it as it is.
        """
        return scaled_rate(self.base_learning_rate, step_samples, self.reference_batch_size)

    def rate_factor(self, step_samples: float) -> float:
        """Return by what a schedule's rates are multiplied for steps of so many samples."""
        return self.learning_rate(step_samples) / self.base_learning_rate
