"""Batches that fit: how large they may be, whether one will fit now, and what to do where one did not."""

import logging
from collections.abc import Callable
from traceback import clear_frames
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from trainauto.core.errors import InputError, Problem
from trainauto.core.units import GIB, MIB, size_text
from trainauto.data.packing import IntArray
from trainauto.data.packing.counts import largest_counts
from trainauto.memory.cost.ratio_prior import UPPER
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.oom import allocator_message, in_words, is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.tasks.multitask.prediction.batch_parts import Part, rows_of, run_each_part
from trainauto.tasks.multitask.prediction.device_room import obtainable_bytes, usable_device
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor

logger = logging.getLogger(__name__)

MOST_SAMPLES = 2**20
"""Largest batch that is ever called safe."""

Result = TypeVar("Result")


class OOMGuardian:
    """Keeps batches within a share of the memory there is.

    Everything that is in use counts: on CUDA what this process's allocator has handed out or cannot give back, and what
    other processes use of the card. On the CPU, use counts from when the guardian is made (or the meter's baseline was
    set), as budgets do.

    Attributes:
        device: the one that is watched.
        meter: reads what is in use.

    Args:
        device: "cuda:0" becomes the CPU on a machine without a card, which is said once.
        memory_margin_percent: share of the limit that stays free, from 0 to below 1: 0.10 is ten per cent.
        predictor: says what batches take; ``None``: by the figures that BrainVLM published.
        max_memory_mb: binary megabytes that may be used; more than there is counts as what there is, which is said
            once. ``None``: all there is.
        max_reduction_steps: how often :meth:`run_in_parts` halves a batch that does not fit.
        meter: of the training, where it has one, so that both count from the same baseline.

    Raises:
        InputError: a number is out of range, or nothing says how much memory there is.
    """

    def __init__(
        self,
        device: str = "cuda:0",
        memory_margin_percent: float = 0.10,
        *,
        predictor: MemoryPredictor | None = None,
        max_memory_mb: float | None = None,
        max_reduction_steps: int = 3,
        meter: MemoryMeter | None = None,
    ) -> None:
        _check(memory_margin_percent, max_memory_mb, max_reduction_steps)
        self.device = usable_device(device)
        self.memory_margin_percent = memory_margin_percent
        self.max_reduction_steps = max_reduction_steps
        if meter is None:
            meter = MemoryMeter(self.device)
            meter.set_baseline()
        self.meter = meter
        self._predictor = predictor
        self._max_bytes = self._capped(max_memory_mb)

    @property
    def predictor(self) -> MemoryPredictor:
        """Says what batches take."""
        if self._predictor is None:
            self._predictor = MemoryPredictor(str(self.device))
        return self._predictor

    @predictor.setter
    def predictor(self, predictor: MemoryPredictor) -> None:
        self._predictor = predictor

    @property
    def limit_bytes(self) -> int:
        """What may be in use at most, the margin among it: less than asked for where other processes took some."""
        limits = [self._max_bytes, self.meter.limit_bytes]
        if self.device.type == "cuda":  # pragma: no cuda
            limits.append(obtainable_bytes(self.device))
        return min(limit for limit in limits if limit is not None)

    def in_use_bytes(self) -> int:
        """Return what is in use now and stays so.

        On CUDA that includes what the allocator reserved and cannot give back, since other tensors lie in the same
        segments: a step may find no place there for what it needs. What is cached in whole segments can be used again.
        """
        if self.device.type == "cuda":  # pragma: no cuda
            split = torch.cuda.memory_stats(self.device).get("inactive_split_bytes.all.current", 0)
            return torch.cuda.memory_allocated(self.device) + int(split)
        return max(0, self.meter.now_bytes())

    def room_bytes(self) -> int:
        """Return what a batch may take beside what is in use, so that the margin stays free; 0 where there is none."""
        return max(0, int(self.limit_bytes * (1 - self.memory_margin_percent)) - self.in_use_bytes())

    def preflight_check(self, predicted_gb: float) -> bool:
        """Say whether a batch fits now that takes so much beside what is in use.

        Args:
            predicted_gb: binary gigabytes, as :meth:`MemoryPredictor.predict_batch_memory` returns them.
        """
        return predicted_gb * GIB <= self.room_bytes()

    def estimate_safe_batch_size(self, task: str, *, is_training: bool = True) -> int:
        """Return how many of a task's largest samples fit now and leave the margin free, but one time in a hundred.

        Args:
            task: of the samples.
            is_training: whether gradients are computed.

        Returns:
            The number of samples; 0 where not even one fits, which is logged.

        Raises:
            InputError: there is no such task.
        """
        room = self.room_bytes()

        def upper_bytes(samples: int) -> int:
            shape = self.predictor.shape_of({task: samples})
            return self.predictor.predict_bytes(shape, {task: samples}, quantile=UPPER, is_training=is_training)

        def fits(counts: IntArray, _places: IntArray) -> NDArray[np.bool_]:
            return np.array([upper_bytes(count) <= room for count in counts.tolist()])

        if (one := upper_bytes(1)) > room:
            logger.warning(
                "no batch of task '%s' is safe: one sample may take %s, and %s are free within the limit of %s",
                task,
                size_text(one),
                size_text(room),
                size_text(self.limit_bytes),
            )
            return 0
        return int(largest_counts(fits, np.ones(1, np.int64), np.array([MOST_SAMPLES]))[0])

    def emergency_cleanup(self) -> int:
        """Collect garbage and give cached memory back; return how many bytes fewer are held."""
        before = self._held_bytes()
        release_memory(self.device)
        return max(0, before - self._held_bytes())

    def protected_forward(self) -> "ProtectedForward":
        """Return a context that survives running out of memory, and nothing else.

        with guardian.protected_forward() as forward:
            loss = model(**batch).loss
        if forward.ran_out_of_memory:
            ...  # smaller batches; what was cached is free again
        """
        return ProtectedForward(self)

    def run_in_parts(self, forward: Callable[[Any], Result], batch: Any) -> "list[Part[Result]]":
        """Run a batch; where it runs out of memory, in halves, quarters and so on, so often as reductions are allowed.

        Every other error is the caller's, and so is running out of memory in the smallest parts.

        Args:
            forward: is called for each part, and keeps nothing of one that fails: no gradients, no state.
            batch: a mapping of tensors and lists with one row a sample, or a tensor.

        Returns:
            What came of each part, in order. Parts hold different numbers of samples: weigh means by them.
        """
        samples = rows_of(batch)
        for step in range(self.max_reduction_steps + 1):
            size = max(1, -(-samples // 2**step))
            if size == 1 or step == self.max_reduction_steps:
                return run_each_part(forward, batch, samples, size)
            failure = ""
            try:
                return run_each_part(forward, batch, samples, size)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                failure = in_words(allocator_message(error))
            # Only here, where the error is gone, do the tensors that its frames held go as well.
            self.emergency_cleanup()
            logger.warning("%d samples at a time ran out of memory (%s): half of them next", size, failure)
        raise AssertionError("the last reduction returns or raises")

    def _held_bytes(self) -> int:
        if self.device.type == "cuda":  # pragma: no cuda
            return torch.cuda.memory_reserved(self.device)
        return self.meter.now_bytes()

    def _capped(self, max_memory_mb: float | None) -> int:
        asked = None if max_memory_mb is None else int(max_memory_mb * MIB)
        there_is = obtainable_bytes(self.device)
        if asked is None and there_is is None:
            raise InputError("max_memory_mb: this system does not tell how much memory there is; give a limit")
        if asked is not None and there_is is not None and asked > there_is:
            logger.warning(
                "max_memory_mb=%g is more than there is: %.0f MiB count instead. This is logged once.",
                max_memory_mb,
                there_is / MIB,
            )
        return min(size for size in (asked, there_is) if size is not None)


class ProtectedForward:
    """A context that ends in peace where memory runs out within, and frees what it can; see :class:`OOMGuardian`.

    Attributes:
        ran_out_of_memory: whether it did.
        message: what the allocator said.
    """

    def __init__(self, guardian: OOMGuardian) -> None:
        self._guardian = guardian
        self.ran_out_of_memory = False
        self.message = ""

    def __enter__(self) -> Self:
        self.ran_out_of_memory, self.message = False, ""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or not is_out_of_memory(error):
            return False
        self.ran_out_of_memory, self.message = True, in_words(allocator_message(error))
        # The error is alive until this returns, and with its frames every tensor that the model was working on.
        clear_frames(traceback)
        self._guardian.emergency_cleanup()
        return True


def _check(margin: float, max_memory_mb: float | None, max_reduction_steps: int) -> None:
    if not 0 <= margin < 1:
        advice = f"{margin:g} per cent are {margin / 100:g}." if 1 <= margin < 100 else "Ten per cent are 0.10."
        raise InputError(
            Problem(f"memory_margin_percent: a share from 0 to below 1 is needed, got {margin:g}", advice=advice)
        )
    if max_memory_mb is not None and not max_memory_mb > 0:
        raise InputError(f"max_memory_mb: a number of MiB above 0 is needed, got {max_memory_mb:g}")
    if max_reduction_steps < 0:
        raise InputError(f"max_reduction_steps: a number from 0 on is needed, got {max_reduction_steps}")
