"""What a batch costs: whole numbers that never fall when a batch grows."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from trainauto.core.sharding import SampleSharding
from trainauto.data.packing.sizes import IntArray


class BatchCost(Protocol):
    """Prices batches; a batch fits when its cost is at most a bound.

    A cost is vectorised, exact (integers), and monotone: more samples, a greater length or more images never cost less.
    So any part of a batch that fits also fits. :func:`check_monotone` looks whether that is so.
    """

    @property
    def unit(self) -> str:
        """What costs and bounds are in, as a log says it: ``tokens``, ``bytes``."""

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return what batches cost; the arguments broadcast against each other.

        Args:
            samples: how many samples each batch holds.
            longest: length of its longest one, to which the others are padded.
            images: images of all its samples together; 0 where there are none.
        """


@runtime_checkable
class UncertainCost(BatchCost, Protocol):
    """A cost that is predicted, such as bytes."""

    def margin(self, probability: float) -> float:
        """Return a factor of at least 1 that says how far a batch may cost more than predicted.

        With at most this probability, a batch's true cost relative to another batch's exceeds the predicted relation by
        more than the factor.
        """


@dataclass(frozen=True)
class RankCost:
    """What a batch costs the rank that has most of it, where its samples are dealt to ranks in turn.

    Attributes:
        whole: what a batch costs that one process has.
        sharding: how samples are divided among ranks.
    """

    whole: BatchCost
    sharding: SampleSharding

    @property
    def unit(self) -> str:
        """That of the whole."""
        return self.whole.unit

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the cost of the largest share; images are taken to be spread evenly."""
        samples = np.asarray(samples)
        share = self.sharding.most_of_each(samples)
        return self.whole.cost(share, longest, -(-np.asarray(images) * share // np.maximum(1, samples)))


@dataclass(frozen=True)
class TokenCost:
    """Padded tokens: samples times the longest length.

    Attributes:
        unit: what costs are in.
    """

    unit: str = "tokens"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the tokens of padded batches."""
        del images
        return samples * longest


@dataclass(frozen=True)
class PaddedCost:
    """A cost of the widths that batches are padded to.

    Attributes:
        of_widths: cost of batches by their width.
        multiple: widths are multiples of this (``pad_to_multiple_of`` of a tokenizer).
    """

    of_widths: BatchCost
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.multiple < 1:
            raise ValueError(f"lengths cannot be padded to a multiple of {self.multiple}")

    @property
    def unit(self) -> str:
        """What costs are in."""
        return self.of_widths.unit

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return what batches cost."""
        return self.of_widths.cost(samples, padded_width(longest, self.multiple), images)


def padded_width(longest: IntArray, multiple: int) -> IntArray:
    """Return how wide batches are by their longest samples; at least one column, for models take no batch without."""
    return -(-np.maximum(longest, 1) // multiple) * multiple


def check_monotone(cost: BatchCost, longest_tokens: int, most_samples: int, most_images: int = 0) -> None:
    """Look on a grid of shapes whether a cost is made of integers and never falls when a batch grows.

    The grid has every small value, and larger ones in steps of about a fifth with their neighbours, where roundings to
    multiples would show.

    Args:
        cost: what is checked.
        longest_tokens: greatest length to look at.
        most_samples: most samples of a batch to look at.
        most_images: most images of a batch to look at.

    Raises:
        ValueError: costs are no integers, of another shape, or negative, or a larger batch costs less; the message
            names the two batches.
    """
    axes = (_grid(1, most_samples), _grid(0, longest_tokens), _grid(0, most_images))
    shape = tuple(len(axis) for axis in axes)
    costs = np.asarray(cost.cost(axes[0][:, None, None], axes[1][None, :, None], axes[2][None, None, :]))
    if costs.dtype.kind not in "iu":
        raise ValueError(f"costs must be integers, got {costs.dtype}")
    try:
        costs = np.broadcast_to(costs, shape)
    except ValueError:
        raise ValueError(f"costs of batches of shape {shape} have shape {costs.shape}") from None

    def described(place: tuple[int, ...]) -> str:
        samples, longest, images = (int(axis[i]) for axis, i in zip(axes, place, strict=True))
        with_images = f" with {images} images" if most_images else ""
        return f"{samples} x {longest} tokens{with_images} costs {int(costs[place])} {cost.unit}"

    negative = np.argwhere(costs < 0)
    if len(negative):
        raise ValueError(f"costs cannot be negative, but {described(tuple(negative[0]))}")
    for dimension in range(3):
        larger, smaller = np.roll(costs, -1, dimension), costs
        falls = larger < smaller
        falls[(slice(None),) * dimension + (-1,)] = False  # rolled around
        places = np.argwhere(falls)
        if len(places):
            before = tuple(places[0])
            after = tuple(i + (d == dimension) for d, i in enumerate(before))
            raise ValueError(f"a larger batch must not cost less, but {described(before)} and {described(after)}")


def _grid(first: int, last: int) -> IntArray:
    small = np.arange(first, min(last, 16) + 1)
    steps = np.unique(np.round(16 * 1.2 ** np.arange(0, 120)).clip(max=last).astype(np.int64))
    eights = steps // 8 * 8
    around = np.concatenate([small, [last], *(values + by for values in (steps, eights) for by in (-1, 0, 1))])
    return np.unique(around[(around >= first) & (around <= last)])
