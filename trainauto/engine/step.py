"""One optimizer step: every pass on micro-batches, weighted by samples, clipped, stepped.

The transaction is one pass up to its optimizer step. When memory runs out in it, what the attempt made is dropped,
random generators and buffers go back to where they were, and the same samples run again in smaller pieces. Passes that
have stepped before are not undone: where no pieces fit after them, the pass runs on smaller crops of the same samples.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from trainauto.core.batch import Batch
from trainauto.core.errors import NonFiniteError, TrainautoError
from trainauto.core.objectives import MicroBatch, Objective
from trainauto.core.plan import LQ_SIZE, Axis
from trainauto.core.records import MicrobatchSplit
from trainauto.distributed.communicator import ABORT, DOES_NOT_FIT, OK, SINGLE_PROCESS, Communicator
from trainauto.engine.gradients import Failure, Gradients, compute_gradients, largest_forward, on_device
from trainauto.engine.snapshot import BatchTooLargeError, GroupOutOfMemoryError, StepSnapshot
from trainauto.memory.monitor import onednn
from trainauto.memory.monitor.oom import in_words, is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.models.base_model import BaseModel

SHOWN_FILES = 8

ELSEWHERE = "another rank has run out of memory"


@dataclass(frozen=True)
class StepOutcome:
    """What a step gave, on this rank.

    Attributes:
        losses: value of each loss term of every pass, weighted by samples; on several ranks, this one's part of it.
        grad_norms: gradient norm of each pass, before clipping.
        skipped: passes whose float16 gradients overflowed, so that their weights were left alone.
        seconds: how long it took.
        failures: passes that ran out of memory on the way, in order.
        pieces: how each pass ran in the end that did not run as the plan says.
    """

    losses: Mapping[str, float]
    grad_norms: Mapping[str, float]
    skipped: tuple[str, ...]
    seconds: float
    failures: tuple[Failure, ...] = field(default=())
    pieces: Mapping[str, MicrobatchSplit] = field(default_factory=dict)


def optimize_parameters(
    model: BaseModel,
    batch: Batch,
    *,
    max_norm: float | None = None,
    rewind: StepSnapshot | None = None,
    axes: Sequence[Axis] = (),
    average_share: float = 1.0,
    replayed: Mapping[str, MicrobatchSplit] | None = None,
    ranks: Communicator = SINGLE_PROCESS,
) -> StepOutcome:
    """Train a batch: each pass of the model in order, then the moving averages.

    What a pass adds to its micro-batches (detached tensors under new names) is handed to the passes after it.

    Args:
        model: what to train.
        batch: its plan says in how many micro-batches.
        max_norm: gradients with a larger norm are scaled down to it.
        rewind: keeps what a pass may change; one for all steps knows which buffers ever change.
        axes: bounds of crops. A pass that fits in no pieces once another has stepped goes on with smaller crops down to
            these; without them, and in the first pass, that is :class:`BatchTooLargeError`.
        average_share: how many steps this one counts as to moving averages.
        replayed: how the passes of this step ran when it was logged: they run so from the start. Since the step is to
            stay one step, crops are then cut in the first pass too rather than the batch given back.
        ranks: who trains the other samples of the step.

    Raises:
        NonFiniteError: a loss term or a gradient is NaN or Inf; the weights of that pass are untouched.
        BatchTooLargeError: a pass fits in no smaller pieces, here or on another rank; its weights are untouched on all.
        RankAbortedError: another rank ends the run.
    """
    start = time.perf_counter()
    rewind = rewind or StepSnapshot(model.networks.values(), model.device)
    step = _Step(model, batch, rewind, ranks)
    losses: dict[str, float] = {}
    norms: dict[str, float] = {}
    skipped: list[str] = []
    failures: list[Failure] = []
    pieces: dict[str, MicrobatchSplit] = {}
    as_planned = MicrobatchSplit(math.ceil(len(batch) / largest_forward(batch)), batch.shape.extent)
    crops = next((axis for axis in axes if axis.name == LQ_SIZE), None)
    for position, one in enumerate(model.objectives()):
        # Passes that have stepped are never undone, so the batch cannot be given back any more.
        crop = crops if position or replayed is not None else None
        done = step.run(one, crop, (replayed or {}).get(one.name, as_planned))
        if done.pieces != as_planned:
            pieces[one.name] = done.pieces
        values, norms[one.name] = _read_and_clip(one, done.terms, max_norm, batch)
        losses |= values
        failures += done.failures
        if not _step(one):
            skipped.append(one.name)
        rewind.commit_pass()
        if ranks.world_size > 1:
            ranks.broadcast_tensors(rewind.changing())
    rewind.commit_step()
    _after_step(model, average_share)
    return StepOutcome(losses, norms, tuple(skipped), time.perf_counter() - start, tuple(failures), pieces)


def parameters_of(one: Objective) -> list[nn.Parameter]:
    """Return the weights that a pass changes."""
    return [parameter for group in one.optimizer.param_groups for parameter in group["params"]]


class _Step:
    """The tensors of a step, on the way through its passes.

    Args:
        model: what is trained.
        batch: this rank's samples.
        rewind: keeps what a pass may change.
        ranks: who trains the other samples.
    """

    def __init__(self, model: BaseModel, batch: Batch, rewind: StepSnapshot, ranks: Communicator) -> None:
        self._model = model
        self._batch = batch
        self._rewind = rewind
        self._ranks = ranks
        self._tensors: MicroBatch | None = None

    def run(self, one: Objective, crop: Axis | None, begin: MicrobatchSplit) -> Gradients:
        """Compute the gradients of a pass, here and on the other ranks, and sum them.

        Raises:
            BatchTooLargeError: it fits in no pieces, here or elsewhere.
            GroupOutOfMemoryError: it does not fit here, and the ranks have met already.
            RankAbortedError: another rank ends the run.
        """
        done, too_large = self._attempt(one, crop, begin)
        if self._ranks.reduces_in_backward:
            if too_large is not None:
                raise GroupOutOfMemoryError(too_large)
            if done is not None:
                return done
        worst = self._ranks.sum_gradients(parameters_of(one), OK if too_large is None else DOES_NOT_FIT)
        if worst == ABORT:
            raise RankAbortedError("another rank ended the run with an error of its own; the reason stands there")
        if done is None or worst == DOES_NOT_FIT:
            if done is not None:
                one.optimizer.zero_grad(set_to_none=True)
                self._rewind.restore()
            raise too_large or BatchTooLargeError(one.name, 0, ELSEWHERE)
        return done

    def _attempt(
        self, one: Objective, crop: Axis | None, begin: MicrobatchSplit
    ) -> tuple[Gradients | None, BatchTooLargeError | None]:
        try:
            if self._tensors is None:
                self._tensors = on_device(self._model, self._batch)
            if not len(self._batch):  # of unequal ranks one may have nothing to do
                one.optimizer.zero_grad(set_to_none=True)
                self._rewind.take()
                return Gradients({}, {}, begin), None
            with onednn.left_aside(begin.without_onednn):
                done = compute_gradients(
                    one, self._tensors, self._batch, self._rewind, self._model.device, crop, begin, self._ranks
                )
        except BatchTooLargeError as error:
            return None, error.with_traceback(None)
        self._tensors = {**self._tensors, **done.handed_on}
        return done, None


def _read_and_clip(
    one: Objective, terms: Mapping[str, Tensor], max_norm: float | None, batch: Batch
) -> tuple[dict[str, float], float]:
    """Bring losses and gradient norm to the host, refuse what is not finite, clip.

    All figures travel at once: on CUDA it is the one place of a pass that waits for the device.
    """
    if one.scaler is not None:
        one.scaler.unscale_(one.optimizer)
    parameters = parameters_of(one)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    total = torch.nn.utils.get_total_norm(gradients)
    if hasattr(total, "full_tensor"):  # of weights that are spread over the ranks
        total = total.full_tensor()
    *values, norm = torch.stack([*terms.values(), total]).tolist()
    losses = dict(zip(terms, values, strict=True))
    for name, value in losses.items():
        if not math.isfinite(value):
            raise NonFiniteError(_non_finite(f"loss term '{name}' of pass '{one.name}' is {value}", batch))
    # With loss scaling an overflow is expected now and then; the scaler skips that step and lowers its factor.
    if one.scaler is None and not math.isfinite(norm):
        elsewhere = " (of all ranks: one whose own loss is not finite names its files)" if batch.others else ""
        raise NonFiniteError(_non_finite(f"the gradient norm of pass '{one.name}' is {norm}{elsewhere}", batch))
    if max_norm is not None and norm > max_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total)
    return losses, norm


def _step(one: Objective) -> bool:
    try:
        if one.scaler is None:
            one.optimizer.step()
            return True
        factor = one.scaler.get_scale()
        one.scaler.step(one.optimizer)
        one.scaler.update()
        return one.scaler.get_scale() >= factor
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OptimizerOutOfMemoryError(one.name, str(error)) from None


class OptimizerOutOfMemoryError(TrainautoError):
    """The optimizer's own step ran out of memory: some weights have moved, others have not, so nothing is repeated."""

    def __init__(self, pass_name: str, message: str) -> None:
        super().__init__(
            f"the optimizer of pass '{pass_name}' ran out of memory in its step: {in_words(message.splitlines()[0])}\n"
            "  Its state does not depend on crop or batch: take a smaller network, an optimizer with less state (SGD), "
            "or a larger budget."
        )


class RankAbortedError(TrainautoError):
    """Another rank could not go on and said so before this pass changed any weight."""


def _after_step(model: BaseModel, average_share: float) -> None:
    try:
        model.after_step(average_share)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return
    # Gradients are no longer needed once all passes have stepped; the averages go on where they stopped.
    for optimizer in model.optimizers.values():
        optimizer.zero_grad(set_to_none=True)
    release_memory(model.device)
    model.after_step(average_share)


def _non_finite(what: str, batch: Batch) -> str:
    files = "\n".join(f"    {name}" for name in batch.names[:SHOWN_FILES])
    more = f"\n    ... and {len(batch) - SHOWN_FILES} more" if len(batch) > SHOWN_FILES else ""
    return (
        f"{what}\n  plan: {batch.plan}\n  files of the batch:\n{files}{more}\n"
        "  Try a lower rate, train.grad_clip, or float32 (use_amp: false); look at the files if they are unusual."
    )
