"""The batches of a Trainer's run, as its loop sees them."""

import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset

from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.engine.train_step import next_batch
from trainauto.engine.training import Training
from trainauto.integrations.huggingface.train_data import TrainData
from trainauto.integrations.structure import Structure


class PlannedInputs(dict[str, Any]):
    """What the Trainer's loop sees of a batch; :attr:`batch` is what is trained.

    Attributes:
        batch: as it left the loader.
    """

    batch: Batch

    def __init__(self, batch: Batch, structure: Structure) -> None:
        super().__init__()
        self.hold(batch, structure)

    def hold(self, batch: Batch, structure: Structure) -> None:
        """Become another batch: what did not fit comes again in smaller ones.

        Raises:
            InputError: batches are no mappings.
        """
        if not structure.is_mapping:
            raise InputError(
                "the data collator must make mappings (dicts) of samples: models take what they hold by name"
            )
        self.batch = batch
        self.clear()
        self.update(structure.rebuild(batch.tensors))


class TrainBatches:
    """What the Trainer takes for its DataLoader: batches without end, of one stream through all epochs.

    Who iterates it outside of a run gets those of one epoch.

    Its length is an upper bound: as many steps an epoch as there are samples. It has none where the Trainer is to count
    steps (``max_steps``).

    Attributes:
        seconds: waited for batches since the last step.
        untrained: the batch in hand, whose step is not done.
        is_complete: the run has come to its length, so that no further batch comes.
        run: the engine's parts, once there are any: batches are then made beside its memory budget.

    Args:
        data: what is trained on.
        dataset: the Trainer's own.
        counts_epochs: whether the run is as long as so many epochs.
    """

    def __init__(self, data: TrainData, dataset: Dataset[Any], *, counts_epochs: bool) -> None:
        self.data = data
        self.dataset = dataset
        self._counts_epochs = counts_epochs
        self.is_complete = False
        self.seconds = 0.0
        self.untrained: Batch | None = None
        self.run: Training | None = None
        self._batches: Iterator[Batch] | None = None

    def __len__(self) -> int:
        if not self._counts_epochs:
            raise TypeError("batches follow memory: how many an epoch has is not known before")
        return len(self.data.samples)

    def __iter__(self) -> Iterator[PlannedInputs]:
        samples = 0
        while not (self.is_complete if self.run is not None else samples >= len(self.data.samples)):
            batch = self.next_batch()
            samples += batch.step_samples
            yield PlannedInputs(batch, self.data.structure)

    def next_batch(self) -> Batch:
        """Return the next batch of the stream."""
        if self._batches is None:
            self._batches = iter(self.data.loader)
        start = time.perf_counter()
        batch = next(self._batches) if self.run is None else next_batch(self.run, self._batches)
        self.seconds += time.perf_counter() - start
        self.untrained = batch
        return batch
