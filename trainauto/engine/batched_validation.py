"""A validation set that is run in batches, which shrink where memory runs out."""

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainauto.core.process import Limited, without_memory_limit
from trainauto.core.records import ValidationRecord
from trainauto.core.run_events import Picture
from trainauto.core.words import counted
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.distributed.communicator import Communicator
from trainauto.engine.run_errors import RankAbortedError
from trainauto.engine.signals import StopSignals
from trainauto.memory.monitor.oom import allocator_message, in_words, is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.models.base_model import BaseModel

logger = logging.getLogger(__name__)


class _StopHeardError(BaseException):
    """A signal came while a batch was under way. Like Ctrl-C it is no error that other code may swallow."""


@contextmanager
def _evaluating(model: BaseModel) -> Iterator[None]:
    """Have networks be in evaluation mode, without gradients; they are in the modes they were in afterwards."""
    modes = {module: module.training for network in model.networks.values() for module in network.modules()}
    for network in model.networks.values():
        network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, was_training in modes.items():
            module.training = was_training


class BatchedValidation(ABC):
    """A validation set whose samples run in batches, the largest first; every rank runs all of them.

    Batches that run out of memory run again as halves, and later validations keep to that size.

    Attributes:
        dataset: its samples.
        most: largest batch, in samples, or in :attr:`unit` where there is one; a sample that is larger comes alone.
        sizes: of each sample, by which the largest come first; 1 each where all are as large.
        last: of its validations.
        is_rehearsal: only its first batch is run, to see that it can be.
        sample: what a person calls a sample.
        unit: of sizes, where batches go by them; empty where batches count samples.
        smaller: what makes a sample smaller, in words.
        better_is_higher: for each metric, whether a higher value is better.
        baseline: each metric of what costs nothing; empty where nothing is compared.
        baseline_name: what that is.
        seen: what is validated on, in words.
        measured_by: the same, and which samples they are: only scores of the same are compared.
    """

    sample = "sample"
    unit = ""
    smaller = "smaller samples"
    better_is_higher: Mapping[str, bool]
    baseline: Mapping[str, float] = {}
    baseline_name = ""

    def __init__(
        self, dataset: DynamicDataset, most: int, sizes: NDArray[np.int64] | None = None, *, seen: str, samples: str
    ) -> None:
        self.dataset = dataset
        self.most = most
        self.sizes = np.ones(len(dataset), dtype=np.int64) if sizes is None else sizes
        self.seen, self.measured_by = seen, f"{seen} {samples}"
        self.last: ValidationRecord | None = None
        self.is_rehearsal = False

    @property
    def name(self) -> str:
        """Name of the set, in records and logs."""
        return self.dataset.name

    @abstractmethod
    def batch(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        """Return these samples as a batch, on the CPU."""

    @abstractmethod
    def measure(self, model: Any, tensors: Mapping[str, Tensor]) -> Mapping[str, float]:
        """Return what is measured of a batch on the device: a mean over what its samples weigh, by name.

        Networks are in evaluation mode, and no gradients are kept.

        Args:
            model: of the task.
            tensors: of the batch.
        """

    def metrics(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Return the metrics of the set; here the means over its samples."""
        return means

    def validate(
        self, model: BaseModel, step: int, ranks: Communicator, signals: StopSignals
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        """Validate on every rank; ``None`` if a signal to one of them cut it short.

        Raises:
            RankAbortedError: it failed on another rank.
        """
        start = time.perf_counter()
        means: Mapping[str, float] = {}
        ooms, stopped = 0, False
        try:
            with signals.raising(_StopHeardError), without_memory_limit() as limited, _evaluating(model):
                means, ooms = self._means(model, limited)
        except _StopHeardError:
            stopped = True
        except Exception:
            ranks.all_gather_object({"failed": True, "signal": 0})  # the others wait for what this one says
            raise
        messages = ranks.all_gather_object({"failed": False, "signal": signals.received if stopped else 0})
        failed = [str(rank) for rank, message in enumerate(messages) if message["failed"]]
        if failed:
            raise RankAbortedError(f"validation failed on rank {', '.join(failed)}; the reason stands there")
        if signal := max(message["signal"] for message in messages):
            signals.agreed = signal
            return None
        self.last = ValidationRecord(
            step=step,
            dataset=self.name,
            metrics=self.metrics(means),
            baseline=self.baseline,
            scores=(),
            seconds=time.perf_counter() - start,
            tile_px=0,
            better_is_higher=self.better_is_higher,
            ooms=ooms,
            baseline_name=self.baseline_name,
            seen=self.seen,
            measured_by=dict.fromkeys(self.better_is_higher, self.measured_by),
        )
        return self.last, []

    def lack_of_room(self, model: BaseModel, limited: Limited) -> str:
        """Say so if the largest sample does not fit under a limit, alone."""
        index = int(np.argmax(self.sizes))
        with _evaluating(model):
            failure, _ = self._try(model, self.batch([index]), limited)
        if not failure:
            return ""
        return f"its largest {self._described(index)} does not fit alone. Take {self.smaller}, or a larger budget."

    def if_too_large(self, error: BaseException, *, is_sharded: bool) -> tuple[str, str]:
        """Return how far it was tried when validation ran out of memory, and what to do."""
        del error, is_sharded
        return f"not even one {self.sample} at a time", f"Take {self.smaller}"

    def warm_up(self) -> None:  # noqa: B027
        """Nothing is loaded at the first use."""

    def _means(self, model: BaseModel, limited: Limited) -> tuple[Mapping[str, float], int]:
        """Return what is measured, as means over all samples, and how often memory ran out."""
        order = np.argsort(-self.sizes, kind="stable").tolist()
        sums: dict[str, float] = {}
        total, place, ooms = 0.0, 0, 0
        while place < len(order):
            samples = order[place : place + max(1, self.most // self._cost(order[place]))]
            tensors = self.batch(samples)
            failure, means = self._try(model, tensors, limited)
            if failure:
                self._shrink(samples, failure, model.device)
                ooms += 1
                continue
            weight = self.dataset.workload.weight(tensors)
            sums = {name: sums.get(name, 0.0) + mean * weight for name, mean in means.items()}
            total += weight
            place += len(samples)
            if self.is_rehearsal:
                break
        return {name: value / total for name, value in sums.items()}, ooms

    def _try(
        self, model: BaseModel, tensors: Mapping[str, Tensor], limited: Limited
    ) -> tuple[str, Mapping[str, float]]:
        """Return why a batch does not fit, empty where it does, and what is measured of it."""
        try:
            with limited():
                held = {
                    name: leaf.to(model.device) if isinstance(leaf, Tensor) else leaf for name, leaf in tensors.items()
                }
                return "", self.measure(model, held)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return in_words(allocator_message(error)), {}

    def _shrink(self, samples: Sequence[int], failure: str, device: torch.device) -> None:
        release_memory(device)
        if len(samples) == 1:
            raise MemoryError(f"one {self._described(samples[0])} alone: {failure}")
        self.most = self._cost(samples[0]) * math.ceil(len(samples) / 2)
        logger.warning(
            "out of memory in validation with %s (%s): batches of %s from here on",
            counted(len(samples), self.sample),
            failure,
            counted(self.most, self.unit or self.sample),
        )

    def _cost(self, index: int) -> int:
        """Return what each sample of a batch takes of :attr:`most` where this one is its largest."""
        return int(self.sizes[index]) if self.unit else 1

    def _described(self, index: int) -> str:
        size = f" ({counted(int(self.sizes[index]), self.unit)})" if self.unit else ""
        return f"{self.sample}{size}"
