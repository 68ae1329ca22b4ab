"""The batches of a Trainer's evaluation, drawn one by one so that each can have another size."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate.data_loader import DataLoaderStateMixin
from accelerate.state import GradientState
from torch.utils.data import DataLoader

from trainauto.core.process import without_memory_limit
from trainauto.integrations.huggingface.train_data import usable_columns


class EvaluationBatches(DataLoaderStateMixin, DataLoader[Any]):  # type: ignore[misc]  # mypy does not follow accelerate
    """Samples of a dataset in its order, in batches as large as is known to fit when they are drawn.

    It says which batch is the last, as the loaders of accelerate do: metrics that gather batch by batch
    (``batch_eval_metrics``) are computed then. Workers begin without the memory budget, which is for networks.

    Args:
        trainer: whose.
        dataset: what is evaluated.
        description: of what the batches are for, in transformers' words.
        size: gives the samples of the next batch.
    """

    def __init__(self, trainer: Any, dataset: Any, description: str, size: Callable[[], int]) -> None:
        args = trainer.args
        samples, collate = usable_columns(trainer, dataset, description)
        self._places = _Places(len(samples), size)
        super().__init__(
            samples,
            batch_sampler=self._places,
            collate_fn=collate,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
            generator=torch.Generator(),
        )
        self.gradient_state = GradientState()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.begin()
        self.remainder = -1  # batches differ in size: none is cut
        try:
            with without_memory_limit():
                batches = super().__iter__()
            for number, batch in enumerate(batches, 1):
                # Asked of the places: to draw the next batch first would give it the size of before this one.
                self.end_of_dataloader = self._places.is_last(number)
                yield batch
        finally:
            self.end()


class _Places:
    """Places of the samples of each batch, in order; its length is an estimate, by the size of the next."""

    def __init__(self, samples: int, size: Callable[[], int]) -> None:
        self._samples = samples
        self._size = size
        self._batches: int | None = None

    def __len__(self) -> int:
        return -(-self._samples // self._size())

    def __iter__(self) -> Iterator[list[int]]:
        self._batches, start, number = None, 0, 0
        while start < self._samples:
            stop, number = min(self._samples, start + self._size()), number + 1
            if stop == self._samples:
                self._batches = number
            yield list(range(start, stop))
            start = stop

    def is_last(self, number: int) -> bool:
        """Whether the batch of a number, from 1, is the last."""
        return number == self._batches
