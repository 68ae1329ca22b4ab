"""How many samples a draw holds: a pure function of the plan and of where in the stream it begins."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Protocol

from trainauto.core.plan import Plan
from trainauto.core.sharding import SampleSharding


class Batcher(Protocol):
    """Says how many samples a draw holds, on every rank the same.

    A draw is divided among the ranks in the order of the stream. Where samples differ in size, the answer must hold for
    whichever rank gets which of them, and fewer of the same samples must fit as well: a draw is cut anywhere.
    """

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return how many samples the rank that has most of them gets of the draw that begins at ``first_sample``.

        At least 1, however small the plan.

        Args:
            first_sample: position of its first sample in the stream.
            plan: plan it is drawn under.
        """

    def lacking(self, first_sample: int, plan: Plan) -> int:
        """Return how many samples the draw that begins there has less than its batch says for all ranks, at its end."""

    def part_size(self, first_sample: int, samples: int, plan: Plan) -> int:
        """Return how many samples of a draw on its way fit a smaller plan, on the rank that has most of them.

        At least 1, however small the plan.

        Args:
            first_sample: position of the first of those that are left of it.
            samples: how many of the draw the rank has that has most of them.
            plan: plan they are to be trained under.
        """


class EqualDraws:
    """Draws in which every rank has as many samples as the sharding says."""

    def lacking(self, first_sample: int, plan: Plan) -> int:
        """Return 0."""
        del first_sample, plan
        return 0


class FixedCount(EqualDraws):
    """As many samples as the plan says, wherever the draw begins."""

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return the plan's ``batch_size``."""
        del first_sample
        return plan.batch_size

    def part_size(self, first_sample: int, samples: int, plan: Plan) -> int:
        """Return the plan's ``batch_size``."""
        del first_sample, samples
        return plan.batch_size


class EpochBatches(EqualDraws):
    """As many samples as the plan says, none beyond the end of an epoch.

    The last two draws of an epoch are about equally large, so that no tiny one remains, which batch statistics suffer
    from.

    Args:
        samples: of an epoch.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return the plan's ``batch_size``, or what is left of the epoch."""
        left = self._samples - first_sample % self._samples
        if left <= plan.batch_size:
            return left
        return min(plan.batch_size, ceil(left / 2))

    def part_size(self, first_sample: int, samples: int, plan: Plan) -> int:
        """Return the plan's ``batch_size``."""
        del first_sample, samples
        return plan.batch_size


class SharedEpochs(EpochBatches):
    """The same for several ranks that all get as many samples.

    Where they do not divide an epoch, its last draw goes into the next one by fewer samples than there are ranks.

    Args:
        samples: of an epoch.
        ranks: how many share them.
    """

    def __init__(self, samples: int, ranks: int) -> None:
        super().__init__(samples)
        self._ranks = ranks

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return the plan's ``batch_size``, or each rank's share of what is left of the epoch."""
        left = ceil((self._samples - first_sample % self._samples) / self._ranks)
        return left if left <= plan.batch_size else min(plan.batch_size, ceil(left / 2))


class DividedEpochs(EpochBatches):
    """The same for ranks whose shares differ, none beyond the end of an epoch: its last draw lacks some samples.

    Args:
        samples: of an epoch.
        sharding: how they are divided among ranks.
    """

    def __init__(self, samples: int, sharding: SampleSharding) -> None:
        super().__init__(samples)
        self._sharding = sharding

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return the plan's ``batch_size``, or the largest rank's share of what is left of the epoch."""
        left = self._sharding.most_of(self._samples - first_sample % self._samples)
        return left if left <= plan.batch_size else min(plan.batch_size, ceil(left / 2))

    def lacking(self, first_sample: int, plan: Plan) -> int:
        """Return how many samples the draw that ends an epoch has less than its batch says."""
        left = self._samples - first_sample % self._samples
        return max(0, self._sharding.total(self.batch_size(first_sample, plan)) - left)


class KnownDraws:
    """Draws of a log hold what they held; those beyond it hold what another batcher says.

    A log is repeated by one rank, which has all samples of a draw.

    Args:
        known: samples of each draw, by the position of its first sample.
        beyond: asked about all others.
        share: called with the position of a draw before ``beyond`` is asked: others may have shared it when it was
            logged.
    """

    def __init__(
        self, known: Mapping[int, int], beyond: Batcher, share: Callable[[int], None] = lambda _first: None
    ) -> None:
        self._known = known
        self._beyond = beyond
        self._share = share

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return what the log says, or the other batcher, which is asked for each draw: it may pack as it is asked."""
        self._share(first_sample)
        packed = self._beyond.batch_size(first_sample, plan)
        return self._known.get(first_sample, packed)

    def lacking(self, first_sample: int, plan: Plan) -> int:
        """Return 0, or beyond the log what the other batcher says."""
        return 0 if first_sample in self._known else self._beyond.lacking(first_sample, plan)

    def part_size(self, first_sample: int, samples: int, plan: Plan) -> int:
        """Return what the other batcher says."""
        return self._beyond.part_size(first_sample, samples, plan)


FIXED_COUNT = FixedCount()
"""Draws of a plan that counts samples."""
