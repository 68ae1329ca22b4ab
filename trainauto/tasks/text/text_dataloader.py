"""The loader of texts: torch's own, with a position that can be saved, and a way to run a function over everything."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader

from trainauto.core.errors import InputError
from trainauto.core.process import parse_size_bytes
from trainauto.data.packing import CandidateCounts, PackedBatchSampler
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.tasks.text.map_report import MappedTexts
from trainauto.tasks.text.map_texts import TextMapper, limited_memory
from trainauto.tasks.text.text_batch import TextBatch
from trainauto.tasks.text.tokenized_texts import TokenizedTexts


class TextDataLoader(DataLoader[TextBatch]):
    """Batches of texts under a rule, one epoch an iteration.

    Every iteration begins an epoch of its own, also where the one before was left early; only after
    :meth:`load_state_dict` it continues within one. ``len()`` is the number of batches of an epoch.

    Attributes:
        mapped: results and report of the last :meth:`map`, of one that an error or Ctrl-C ended, too.

    Args:
        texts: what is batched; the loader's ``dataset``.
        rule: how many texts a batch holds.
        sampler: gives the batches out by that rule.
        num_workers: processes that pad ahead; 0 pads in this one.
        pin_memory: have batches in memory that is copied to a GPU faster.
    """

    dataset: TokenizedTexts

    def __init__(
        self,
        texts: TokenizedTexts,
        rule: CandidateCounts,
        sampler: PackedBatchSampler,
        *,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        super().__init__(
            texts, batch_sampler=sampler, collate_fn=_as_it_is, num_workers=num_workers, pin_memory=pin_memory
        )
        self._rule = rule
        self._batches = sampler
        self._state = sampler.state_dict()
        self._continues = False
        self._iteration = 0
        self.mapped: MappedTexts | None = None

    def __iter__(self) -> Iterator[TextBatch]:  # type: ignore[override]
        if self._state["samples"] and not self._continues:
            self._state = {**self._state, "epoch": self._state["epoch"] + 1, "samples": 0}
        self._continues = False
        self._batches.load_state_dict(self._state)
        self._iteration += 1
        return self._consumed(super().__iter__(), self._state, self._iteration)

    def _consumed(self, batches: Iterator[TextBatch], start: dict[str, Any], iteration: int) -> Iterator[TextBatch]:
        for number, batch in enumerate(batches, start=1):
            # Before it is handed out: what is saved while a batch is worked on counts it as done, as torchdata does.
            if iteration == self._iteration:  # an older iterator moves nothing
                self._state = self._batches.advanced(start, number)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was handed out, whatever workers have prepared since."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration continue at a saved position.

        Raises:
            PackingMismatchError: it is of other texts, another order or another rule.
        """
        self._batches.load_state_dict(state)
        self._state, self._continues = self._batches.state_dict(), True
        self._iteration += 1

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be this epoch, from the saved position where one in it was loaded."""
        if not (self._continues and self._state["epoch"] == epoch):
            self._state, self._continues = {**self._state, "epoch": epoch, "samples": 0}, False
            self._iteration += 1

    def map(
        self,
        function: Callable[[TextBatch], Any],
        *,
        target_vram_usage: float | None = None,
        memory_budget: str | None = None,
    ) -> MappedTexts:
        """Run a function over all texts, the longest first, and return its results in the order of the texts.

        What there is so far is in ``mapped``, whatever ends it.

        Batches are planned one by one, in this process: peaks that are measured correct what is predicted of the next,
        and texts of a batch that runs out of memory come again in smaller ones. Random order and saved positions play
        no part. On CUDA results that are tensors stay on the card unless the function moves them.

        Args:
            function: is given a batch, returns one result for each of its texts (a sequence, an array or a tensor), or
                ``None`` where only its effects count.
            target_vram_usage: let batches fill this share of the memory; by default they take what the first takes.
            memory_budget: memory to use, such as ``"2GiB"``: of the card on CUDA, beyond what the process holds
                elsewhere. On a CPU, call ``trainauto.set_environment()`` before torch is imported.

        Raises:
            TextDoesNotFitError: a text runs out of memory alone.
            InputError: the function returns another number of results than a batch has texts, or a share is asked for
                of memory whose amount is unknown.
        """
        if not callable(function):
            raise InputError(f"map needs a function of a batch, not {type(function).__name__}")
        if self._batches.world_size > 1:
            raise InputError("map runs over all texts: give each rank texts of its own, and no world_size")
        meter = MemoryMeter.of_this_process()
        with limited_memory(meter, _size_bytes(memory_budget)):
            mapper = TextMapper(self.dataset, self._rule, function, meter, target_vram_usage)
            self.mapped = MappedTexts(mapper.results, mapper.report)
            mapper.run()
        return self.mapped


def _as_it_is(batch: Any) -> Any:
    """Return what the dataset made: a batch already. A function of the module, so that workers can be spawned."""
    return batch


def _size_bytes(memory_budget: str | None) -> int | None:
    if memory_budget is None:
        return None
    try:
        return parse_size_bytes(memory_budget)
    except ValueError as error:
        raise InputError(f"memory_budget: {error}") from None
