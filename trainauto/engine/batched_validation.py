"""A validation set that is run in batches, which shrink where memory runs out."""

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
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
from trainauto.memory.monitor.release import release_memory, repeatable
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


@dataclass
class _Sums:
    """What one rank has measured.

    Attributes:
        sums: of what its batches measured, times what they weigh, by name.
        weight: of all of them.
        ooms: how often memory ran out.
    """

    sums: dict[str, float]
    weight: float
    ooms: int

    def add(self, means: Mapping[str, float], weight: float) -> None:
        """Take in a batch."""
        for name, mean in means.items():
            self.sums[name] = self.sums.get(name, 0.0) + mean * weight
        self.weight += weight


def _means_of(ranks: Iterable[_Sums]) -> tuple[Mapping[str, float], int]:
    """Return the means over the samples of all ranks, in their order, and how often memory ran out on all."""
    shares = list(ranks)
    names = dict.fromkeys(name for share in shares for name in share.sums)
    weight = math.fsum(share.weight for share in shares)
    means = {name: math.fsum(share.sums.get(name, 0.0) for share in shares) / weight for name in names}
    return means, sum(share.ooms for share in shares)


class BatchedValidation(ABC):
    """A validation set whose samples run in batches, the largest first; ranks share its samples.

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
        most_option: option that says how large batches are; empty where none does.
        better_is_higher: for each metric, whether a higher value is better.
        baseline: each metric of what costs nothing; empty where nothing is compared.
        baseline_name: what that is.
        seen: what is validated on, in words.
        measured_by: the same, and which samples they are: only scores of the same are compared.
    """

    sample = "sample"
    unit = ""
    smaller = "smaller samples"
    most_option = ""
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
        """Validate with all ranks; ``None`` if a signal to one of them cut it short.

        Raises:
            RankAbortedError: it failed on another rank.
        """
        start, together = time.perf_counter(), model.is_sharded
        mine, stopped = _Sums({}, 0.0, 0), False
        try:
            # Ranks that run every pass together hear of a signal between passes, not where it comes.
            at_once = nullcontext() if together else signals.raising(_StopHeardError)
            with at_once, without_memory_limit() as limited, _evaluating(model):
                if together:
                    mine = self._sums_in_step(model, ranks, signals, limited)
                else:
                    mine = self._sums_of(self._rows(ranks), model, limited)
        except _StopHeardError:
            stopped = True
        except Exception:
            if not together:  # with sharded weights, the other ranks wait in a pass and would not hear of it
                ranks.all_gather_object({"failed": True, "signal": 0})
            raise
        messages = ranks.all_gather_object(
            {"failed": False, "signal": signals.received if stopped else 0, "sums": asdict(mine)}
        )
        failed = [str(rank) for rank, message in enumerate(messages) if message["failed"]]
        if failed:
            raise RankAbortedError(f"validation failed on rank {', '.join(failed)}; its log has the reason")
        if signal := max(message["signal"] for message in messages):
            signals.agreed = signal
            return None
        means, ooms = _means_of(_Sums(**message["sums"]) for message in messages)
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
            failure, _ = self._try(model, repeatable(partial(self.batch, [index]), model.device), limited)
        if not failure:
            return ""
        return f"its largest {self._described(index)} does not fit on its own. Use {self.smaller}, or a larger budget."

    def if_too_large(self, error: BaseException, *, is_sharded: bool) -> tuple[str, str]:
        """Return how far it was tried when validation ran out of memory, and what to do."""
        if is_sharded:
            tried = f"and with fully_shard batches do not shrink ({allocator_message(error)})"
            return tried, f"Write a smaller {self.most_option}" if self.most_option else f"Take {self.smaller}"
        return f"not even one {self.sample} at a time", f"Take {self.smaller}"

    def warm_up(self) -> None:  # noqa: B027
        """Nothing is loaded at the first use."""

    def _rows(self, ranks: Communicator) -> list[int]:
        """Return the samples that this rank runs, the largest first: of those of all, every so-manieth."""
        rows: list[int] = np.argsort(-self.sizes, kind="stable").tolist()
        return rows[ranks.rank :: ranks.world_size]

    def _sums_of(self, rows: Sequence[int], model: BaseModel, limited: Limited) -> "_Sums":
        """Return what is measured of samples, in batches that shrink where memory runs out."""
        found, place = _Sums({}, 0.0, 0), 0
        while place < len(rows):
            samples = self._next_batch(rows, place)
            tensors = repeatable(partial(self.batch, samples), model.device)
            failure, means = self._try(model, tensors, limited)
            if failure:
                self._shrink(samples, failure, model.device)
                found.ooms += 1
                continue
            found.add(means, self.dataset.workload.weight(tensors))
            place += len(samples)
            if self.is_rehearsal:
                break
        return found

    def _sums_in_step(self, model: BaseModel, ranks: Communicator, signals: StopSignals, limited: Limited) -> "_Sums":
        """Return the same where ranks gather weights in every pass: all run as many batches, none of which shrinks."""
        rows, found, place = self._rows(ranks), _Sums({}, 0.0, 0), 0
        while True:
            words = {"signal": signals.received, "goes_on": place < len(rows)}
            messages = ranks.all_gather_object(words)
            if any(message["signal"] for message in messages):
                raise _StopHeardError
            if not any(message["goes_on"] for message in messages):
                return found
            samples = self._next_batch(rows, place) or [int(np.argmin(self.sizes))]  # others wait for this one
            tensors = repeatable(partial(self.batch, samples), model.device)
            failure, means = self._try(model, tensors, limited)
            if failure:
                raise MemoryError(f"{counted(len(samples), self.sample)} together: {failure}")
            if place < len(rows):
                found.add(means, self.dataset.workload.weight(tensors))
            place = len(rows) if self.is_rehearsal else place + len(samples)

    def _next_batch(self, rows: Sequence[int], place: int) -> list[int]:
        """Return the samples of the batch that begins at a place; none behind the last one."""
        return list(rows[place : place + max(1, self.most // self._cost(rows[place]))]) if place < len(rows) else []

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
