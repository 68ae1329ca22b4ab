"""What batches of a model take, out of traces of its step: a dozen, more where memory is no line between them."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem
from trainauto.core.units import MIB
from trainauto.core.words import counted
from trainauto.engine.traced_training import kernels_of
from trainauto.memory.cost.ratio_prior import FORWARD_PROCESS, ON_CARD, PROCESS, RatioPrior
from trainauto.memory.tracing.libraries import card_libraries
from trainauto.memory.tracing.live_module import LiveModuleTracer
from trainauto.memory.tracing.trace import Trace, TraceError
from trainauto.tasks.multitask.model_inputs import accepted, inputs_of
from trainauto.tasks.multitask.prediction.batch_memory import BatchMemory, Grid, PaddedShape, interpolated
from trainauto.tasks.multitask.prediction.batch_templates import MakeBatch
from trainauto.tasks.multitask.prediction.task_sizes import TaskSizes

logger = logging.getLogger(__name__)

Loss = Callable[[nn.Module, Any], Tensor]
"""Runs a model on a batch; returns what is minimised."""

FEW, SOME, MANY = 2, 8, 32
"""Samples of the traces: one lets operators leave work out, and beyond, memory grows by what a sample takes."""

SHORT_TOKENS = 8
"""Tokens of the shortest traces: shorter texts are taken to be as long."""

STRAIGHT = 0.01
"""Largest difference, as a share, up to which what lies in the middle of two traces is taken to lie on their line."""


def model_loss(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    """Run a model on what it takes of a batch, and return the loss that it gives.

    Raises:
        InputError: it gives none.
    """
    output = model(**accepted(batch, inputs_of(model)))
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if not isinstance(loss, Tensor):
        raise InputError(
            Problem(
                f"{type(model).__name__} gives no loss for a batch of {', '.join(batch)}",
                advice="Have the model return one (labels are in the batch), or give loss=function(model, batch).",
            )
        )
    return loss


class TracedBatches:
    """Traces steps of a model by the size of their batches; the model stays as it is.

    Args:
        model: a real one, where it will be trained.
        make_batch: makes batches.
        loss: what is minimised; of a forward pass alone, what is computed.
        optimizer: of a training step; ``None``: no gradients are computed, and the model is asked as in evaluation.

    Raises:
        TraceError: the model cannot be copied.
    """

    def __init__(self, model: nn.Module, make_batch: MakeBatch, loss: Loss, optimizer: Optimizer | None) -> None:
        self._make_batch, self._loss = make_batch, loss
        self._trains = optimizer is not None
        self._images = 0
        self._traces: dict[PaddedShape, Trace] = {}
        self._tracer = LiveModuleTracer(model, self._run, self._batch, optimizer)
        self._tracer.twin.module.train(self._trains)

    def memory(self, tokens: int, fewest_images: int, most_images: int) -> BatchMemory:
        """Trace what is needed, and return what any batch takes.

        Args:
            tokens: of the longest text.
            fewest_images: of a sample.
            most_images: of a sample.

        Raises:
            TraceError: a step cannot be traced.
        """
        start = time.perf_counter()
        grid = self._grid(max(1, tokens), fewest_images, most_images)
        held_bytes = self.trace(grid.shapes()[0]).held_bytes
        phases = {shape: self._phases(shape) for shape in grid.shapes()}
        pieces, residual = interpolated(grid, phases)
        least = grid.tokens[0], grid.images[0]
        on_card = self._tracer.twin.device.type == "cuda"
        logger.info(
            "traced %s in %.1f s: a %s holds %.1f MiB whatever its batch is",
            counted(len(self._traces), "batch"),
            time.perf_counter() - start,
            "training step" if self._trains else "forward pass",
            held_bytes / MIB,
        )
        belief = self._belief(self.trace(grid.shapes()[-1]))
        return BatchMemory(pieces, least, held_bytes, belief, counts_held=on_card, residual=residual)

    def trace(self, shape: PaddedShape) -> Trace:
        """Trace a step, once.

        Raises:
            TraceError: it cannot be traced.
        """
        if shape not in self._traces:
            self._images = shape.images
            with torch.set_grad_enabled(self._trains):
                self._traces[shape] = self._tracer.trace(shape.samples, shape.tokens)
        return self._traces[shape]

    # --- within

    def _run(self, model: nn.Module, batch: Any) -> Tensor | None:
        loss = self._loss(model, batch)
        return loss if self._trains else None

    def _batch(self, samples: int, tokens: int) -> Any:
        return self._make_batch(PaddedShape(samples, tokens, self._images))

    def _phases(self, shape: PaddedShape) -> dict[str, float]:
        trace = self.trace(shape)
        return {phase: float(peak - trace.held_bytes) for phase, peak in trace.phase_peaks_bytes.items()}

    def _grid(self, tokens: int, fewest_images: int, most_images: int) -> Grid:
        """Return the ends of each axis, and its middle where memory is no line between them."""
        ends = Grid((FEW, MANY), _ends(min(SHORT_TOKENS, tokens), tokens), _ends(fewest_images, most_images))
        corners = {shape: self._phases(shape) for shape in ends.shapes()}
        largest = ends.shapes()[-1]
        memory = BatchMemory(interpolated(ends, corners)[0], (0, 0), 0, PROCESS)

        def with_middle(axis: str, low_high: tuple[int, ...], middle: int) -> tuple[int, ...]:
            if len(low_high) < 2 or not low_high[0] < middle < low_high[1]:
                return low_high
            shape = largest._replace(**{axis: middle})
            peak = max(self._phases(shape).values())
            bends = abs(float(memory.live_bytes(*shape)) / peak - 1) > STRAIGHT
            return (low_high[0], middle, low_high[1]) if bends else low_high

        return Grid(
            with_middle("samples", ends.samples, SOME),
            with_middle("tokens", ends.tokens, sum(ends.tokens) // 2),
            with_middle("images", ends.images, sum(ends.images) // 2),
        )

    def _belief(self, trace: Trace) -> RatioPrior:
        """Return what is thought of real bytes over those of a trace, see ``MemoryForecast.peaks_on``."""
        if self._tracer.twin.device.type == "cuda":  # pragma: no cuda
            return ON_CARD[kernels_of(trace, card_libraries())]
        usual = PROCESS if self._trains else FORWARD_PROCESS
        copied = max(1.0, trace.peak_with_copies_bytes / max(1, trace.peak_bytes) / usual.median_ratio)
        return replace(usual, median_ratio=copied * usual.median_ratio, upper_ratio=copied**2 * usual.upper_ratio)


class TracedModel:
    """What the steps of a model take; each kind of step is traced when it is first asked for.

    Args:
        model: a real one.
        optimizer: what steps it; ``None``: AdamW.
        make_batch: makes batches.
        loss: what is minimised.
        sizes: of the tasks.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer | None, make_batch: MakeBatch, loss: Loss, sizes: TaskSizes
    ) -> None:
        self._model, self._optimizer, self._make_batch, self._loss = model, optimizer, make_batch, loss
        self._sizes = sizes
        self._known: dict[bool, BatchMemory] = {}

    def memory(self, *, is_training: bool) -> BatchMemory:
        """Return what batches take.

        Raises:
            TraceError: a training step cannot be traced.
        """
        if is_training not in self._known:
            try:
                self._known[is_training] = self._traced(is_training)
            except TraceError as error:
                if is_training:
                    raise
                logger.info("a forward pass alone cannot be traced (%s): it counts as a training step", error)
                self._known[is_training] = self.memory(is_training=True)
        return self._known[is_training]

    def _traced(self, is_training: bool) -> BatchMemory:
        optimizer = (self._optimizer or _adamw(self._model)) if is_training else None
        traced = TracedBatches(self._model, self._make_batch, self._loss, optimizer)
        largest = self._sizes.largest
        return traced.memory(largest.tokens, self._sizes.fewest_images, largest.images)


def _adamw(model: nn.Module) -> Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained or list(model.parameters()))


def _ends(low: int, high: int) -> tuple[int, ...]:
    return (low, high) if low < high else (high,)


__all__ = ["Loss", "TraceError", "TracedBatches", "TracedModel", "model_loss"]
