"""A function over all texts, in batches as large as memory allows; what does not fit comes again in smaller ones."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainauto.core.errors import InputError
from trainauto.core.words import counted
from trainauto.data.packing import CandidateCounts, IntArray, SampleSizes, padded_width
from trainauto.data.packing.counts import largest_counts
from trainauto.memory.cost.measured_bound import MeasuredBound
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.budget import memory_limit_restored
from trainauto.memory.monitor.meter import MemoryMeter, Window
from trainauto.memory.monitor.oom import allocator_message, in_words, is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.tasks.text.map_report import MapReport, TextDoesNotFitError
from trainauto.tasks.text.text_batch import TextBatch
from trainauto.tasks.text.tokenized_texts import TokenizedTexts

logger = logging.getLogger(__name__)


class TextMapper:
    """One pass over all texts, the longest first.

    The next batch is planned once the one before has run, so that what was measured and what failed counts at once.

    Args:
        texts: what it goes over.
        rule: how many samples a batch holds.
        function: what is asked of each batch; returns one result for each text of it, or ``None``.
        meter: of the device that the function works on.
        target_vram_usage: share of the memory there is that batches may fill; None for what the first one takes.

    Raises:
        InputError: a share is asked for of memory whose amount is neither known nor limited.
    """

    def __init__(
        self,
        texts: TokenizedTexts,
        rule: CandidateCounts,
        function: Callable[[TextBatch], Any],
        meter: MemoryMeter,
        target_vram_usage: float | None = None,
    ) -> None:
        if target_vram_usage is not None and not 0 < target_vram_usage <= 1:
            raise InputError(f"target_vram_usage is a share between 0 and 1, not {target_vram_usage}")
        if target_vram_usage is not None and meter.limit_bytes is None:
            raise InputError("target_vram_usage: the amount of memory is unknown; give a memory_budget as well")
        self._texts, self._rule, self._function, self._meter = texts, rule, function, meter
        self._target_share = target_vram_usage
        self._bound = MeasuredBound(rule.bound, fills=target_vram_usage is not None)
        self.results: list[Any] = [None] * len(texts)
        self._order = SampleSizes(texts.lengths).longest_first()
        self.report = MapReport(limit_bytes=meter.limit_bytes)

    def run(self) -> None:
        """Fill ``results``, in the order of the texts.

        Raises:
            TextDoesNotFitError: a text does not fit alone.
            InputError: the function gives another number of results than its batch has texts.
        """
        start, position, most = time.monotonic(), 0, self._rule.base
        with _progress(len(self._order)) as show:
            while position < len(self._order):
                chosen = self._order[position : position + min(self._count(position), most)]
                failure = self._try(chosen)
                if failure is None:
                    position, most = position + len(chosen), len(self._order)
                    show(position)
                elif len(chosen) > 1:
                    most = len(chosen) // 2
                else:
                    index = int(chosen[0])
                    raise TextDoesNotFitError(index, int(self._texts.lengths[index]), failure)
                self.report.seconds = time.monotonic() - start
        logger.info("%s", self.report)

    def _count(self, position: int) -> int:
        """Return how many samples the next batch may hold, by what is known now."""
        if not self.report.batches:
            return self._rule.base
        longest = self._texts.lengths[self._order[position : position + 1]]
        candidates, bound = self._rule.candidates, self._bound.value
        most = len(self._order) if self._target_share else candidates[-1]

        def fits(tried: IntArray, places: IntArray) -> NDArray[np.bool_]:
            del places
            return self._costs(tried, longest) <= bound

        count = int(largest_counts(fits, np.ones(1, np.int64), np.array([most]))[0])
        if self._target_share or bound < self._rule.bound:
            return count
        # As planned: shorter texts, as many as in the first batch, take no more than it, whatever a margin says.
        return max((number for number in candidates if number <= count), default=self._rule.base)

    def _costs(self, samples: IntArray, longest: IntArray) -> IntArray:
        return self._rule.cost.cost(samples, longest, np.zeros(1, np.int64))

    def _try(self, chosen: IntArray) -> str | None:
        """Run a batch and keep its results; return why it does not fit, if it does not."""
        lengths = self._texts.lengths[chosen]
        cost = int(self._costs(np.array([len(chosen)]), lengths.max(keepdims=True))[0])
        held_bytes, failure = self._meter.now_bytes(), ""
        try:
            with self._meter.window() as window:
                self._keep(chosen, self._function(self._texts.batch(chosen.tolist())))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            failure = in_words(allocator_message(error))
        if failure:  # dealt with out here, since the error's traceback holds the tensors of the attempt
            self._lose(chosen, int(lengths.max()), cost, failure)
            return failure
        self._learn(cost, held_bytes, window)
        self.report.texts += len(chosen)
        self.report.batches += 1
        self.report.tokens += int(lengths.sum())
        self.report.padded_tokens += int(len(chosen) * padded_width(lengths.max(), self._texts.padding.multiple))
        return None

    def _lose(self, chosen: IntArray, longest: int, cost: int, failure: str) -> None:
        self._bound.fail(cost)
        self.report.out_of_memory += 1
        release_memory(self._meter.device)
        logger.warning(
            "out of memory with %s of up to %s (%s): trying them in smaller batches",
            counted(len(chosen), "text"),
            counted(longest, "token"),
            failure,
        )

    def _keep(self, chosen: IntArray, results: Any) -> None:
        if results is None:
            if not self.report.batches:
                logger.warning("the function returns None, so that there are no results")
            return
        is_array = isinstance(results, np.ndarray | torch.Tensor)
        if (is_array and not results.ndim) or not (is_array or isinstance(results, list | tuple)):
            raise InputError(
                "the function must return a list, a tuple, an array or a tensor with one result a text, not "
                f"{'one number' if is_array else type(results).__name__}"
            )
        if len(results) != len(chosen):
            raise InputError(f"the function returned {len(results)} results for {counted(len(chosen), 'text')}")
        if isinstance(results, torch.Tensor) and results.untyped_storage().nbytes() > results.nbytes:
            results = results.clone()  # a view keeps all of what it is cut from
        for index, result in zip(chosen.tolist(), results, strict=True):
            self.results[index] = result

    def _learn(self, cost: int, held_bytes: int, window: Window) -> None:
        reading = window.reading
        if reading is None:
            return
        self.report.peak_bytes = max(self.report.peak_bytes, reading.allocated)
        self._bound.observe(cost, reading.allocated - held_bytes)
        if self._target_share and self._meter.limit_bytes:
            held_after_bytes = reading.current or held_bytes  # results of batches may stay where they are
            self._bound.set_target(int(self._target_share * self._meter.limit_bytes) - held_after_bytes)


@contextmanager
def limited_memory(meter: MemoryMeter, budget_bytes: int | None) -> Iterator[None]:
    """Count memory from here on, and let this process use so much of it and no more; None for whatever there is."""
    if budget_bytes is None:
        meter.set_baseline()
        yield
        return
    if meter.device.type == "cpu":
        budget.calm_allocator()
    with memory_limit_restored(meter.device):
        meter.set_budget(budget_bytes)
        yield


@contextmanager
def _progress(texts: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many texts are done."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console  # loaded where there is somebody to look: it takes a third of a second
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Texts", total=texts)
        yield lambda done: progress.update(bar, completed=done)
