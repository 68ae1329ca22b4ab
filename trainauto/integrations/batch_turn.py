"""Whose turn it is in a loop of one's own: which batch is in hand, which were trained, which come again."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from trainauto.core.batch import Batch
from trainauto.core.records import StepRecord
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.engine.run_errors import CannotRepeatError, NothingFitsError
from trainauto.engine.train_step import take_in
from trainauto.engine.training import Training

logger = logging.getLogger(__name__)


class BatchTurn:
    """Follows the batches that a loader hands out until they are trained.

    Attributes:
        in_hand: the batch that was given last, until it is trained or goes back; ``None`` then.

    Args:
        loader: gives them.
    """

    def __init__(self, loader: DynamicDataLoader) -> None:
        self._loader = loader
        self.in_hand: Batch | None = None

    def has_come(self, batch: Batch) -> bool:
        """Say whether a batch is the one in hand, by what it holds: it may have been copied."""
        mine = self.in_hand
        return mine is not None and (mine.first_sample, mine.names) == (batch.first_sample, batch.names)

    def is_over(self, batch: Batch) -> bool:
        """Say whether all samples of a batch were trained before; where not, they come again. The log says so."""
        in_hand = len(self.in_hand) if self.in_hand is not None else 0
        if batch.first_sample + len(batch) <= self._loader.position - in_hand:
            return True
        logger.warning(
            "a batch was passed to step() whose samples come again: it is not trained; go on to the next batch"
        )
        return False

    def went_back(self, batch: Batch) -> None:
        """Note that a batch did not fit, and is the loader's again: its samples come again, or were trained before."""
        if self.has_come(batch):
            self.in_hand = None
            return
        self._loader.withdraw(batch)
        logger.warning(
            "a batch that was trained before does not fit now: it is left out, and its samples do not come again"
        )

    @contextmanager
    def noted(self, batch: Batch) -> Iterator[None]:
        """Note what errors inside say of a batch: it is the loader's again, or lost, for it is no longer as it was."""
        try:
            yield
        except NothingFitsError:
            self.went_back(batch)
            raise
        except CannotRepeatError:
            if self.has_come(batch):
                self.in_hand = None
            raise

    def take_back(self) -> None:
        """Have the batch in hand come again."""
        if self.in_hand is not None:
            self._loader.requeue(self.in_hand)
            self.in_hand = None

    def take_in(self, run: Training, batch: Batch, record: StepRecord) -> None:
        """Count a step, and have automations decide upon it: samples that were trained before are not counted again."""
        before, is_again = run.progress, not self.has_come(batch)
        if not is_again:
            self.in_hand = None
        take_in(run, record)
        if is_again:
            run.progress = replace(run.progress, samples=before.samples, tokens=before.tokens)

    def is_left(self, run: Training, epochs: int | None) -> bool:
        """Say whether fewer than so many epochs have been trained; always where no number is given."""
        return epochs is None or run.progress.samples < epochs * self._loader.samples
