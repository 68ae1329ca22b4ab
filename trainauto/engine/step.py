"""One optimizer step: every pass on micro-batches, weighted by samples, clipped, stepped.

The transaction is one pass up to its optimizer step. When memory runs out in it, what the attempt made is dropped,
random generators and buffers go back to where they were, and the same samples run again in smaller pieces. Passes that
have stepped before are not undone: where no pieces fit after them, the pass runs on smaller crops of the same samples.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from trainauto.core.batch import Batch
from trainauto.core.errors import NonFiniteError, TrainautoError
from trainauto.core.passes import MicroBatch, Pass
from trainauto.core.plan import LQ_SIZE, Axis, Plan
from trainauto.core.records import Pieces
from trainauto.engine.ranks import ALONE, FINE, LEAVES, TOO_LARGE, Ranks
from trainauto.engine.recovery import BatchTooLarge, Rewind, first_line, release_memory, upper_left
from trainauto.memory import onednn
from trainauto.memory.oom import is_out_of_memory
from trainauto.memory.step_policy import shrunk_after_oom
from trainauto.models.base_model import BaseModel

SHOWN_FILES = 8

ELSEWHERE = "another rank has run out of memory"


@dataclass(frozen=True)
class Failure:
    """A pass that ran out of memory and was run again.

    Attributes:
        pass_name: which.
        samples: samples in the largest forward pass that failed.
        pieces: micro-batches it then ran in.
        message: what the allocator said.
        extent: side of the crops it then ran with, in low-quality pixels.
        fitted: samples of the largest forward pass it then ran in.
    """

    pass_name: str
    samples: int
    pieces: int
    message: str
    extent: int
    fitted: int = 0


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
    pieces: Mapping[str, Pieces] = field(default_factory=dict)


def optimize_parameters(
    model: BaseModel,
    batch: Batch,
    *,
    max_norm: float | None = None,
    rewind: Rewind | None = None,
    axes: Sequence[Axis] = (),
    average_share: float = 1.0,
    replayed: Mapping[str, Pieces] | None = None,
    ranks: Ranks = ALONE,
) -> StepOutcome:
    """Train a batch: each pass of the model in order, then the moving averages.

    What a pass adds to its micro-batches (detached tensors under new names) is handed to the passes after it.

    Args:
        model: what to train.
        batch: its plan says in how many micro-batches.
        max_norm: gradients with a larger norm are scaled down to it.
        rewind: keeps what a pass may change; one for all steps knows which buffers ever change.
        axes: bounds of crops. A pass that fits in no pieces once another has stepped goes on with smaller crops down to
            these; without them, and in the first pass, that is :class:`BatchTooLarge`.
        average_share: how many steps this one counts as to moving averages.
        replayed: how the passes of this step ran when it was logged: they run so from the start. Since the step is to
            stay one step, crops are then cut in the first pass too rather than the batch given back.
        ranks: who trains the other samples of the step.

    Raises:
        NonFiniteError: a loss term or a gradient is NaN or Inf; the weights of that pass are untouched.
        BatchTooLarge: a pass fits in no smaller pieces, here or on another rank; its weights are untouched on all.
        AnotherRankLeft: another rank ends the run.
    """
    start = time.perf_counter()
    rewind = rewind or Rewind(model.networks.values(), model.device)
    step = _Step(model, batch, rewind, ranks)
    losses: dict[str, float] = {}
    norms: dict[str, float] = {}
    skipped: list[str] = []
    failures: list[Failure] = []
    pieces: dict[str, Pieces] = {}
    as_planned = Pieces(math.ceil(len(batch) / _largest(batch)), batch.shape.extent)
    crops = next((axis for axis in axes if axis.name == LQ_SIZE), None)
    for position, one in enumerate(model.passes()):
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
        if ranks.count > 1:
            ranks.take_from_first(rewind.changing())
    _after_step(model, average_share)
    return StepOutcome(losses, norms, tuple(skipped), time.perf_counter() - start, tuple(failures), pieces)


def parameters_of(one: Pass) -> list[nn.Parameter]:
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

    def __init__(self, model: BaseModel, batch: Batch, rewind: Rewind, ranks: Ranks) -> None:
        self._model = model
        self._batch = batch
        self._rewind = rewind
        self._ranks = ranks
        self._tensors: MicroBatch | None = None

    def run(self, one: Pass, crop: Axis | None, begin: Pieces) -> "_Gradients":
        """Compute the gradients of a pass, here and on the other ranks, and sum them.

        Raises:
            BatchTooLarge: it fits in no pieces, here or elsewhere.
            AnotherRankLeft: another rank ends the run.
        """
        done, too_large = self._attempt(one, crop, begin)
        worst = self._ranks.sum_gradients(parameters_of(one), FINE if too_large is None else TOO_LARGE)
        if worst == LEAVES:
            raise AnotherRankLeft("another rank ended the run with an error of its own; the reason stands there")
        if done is None or worst == TOO_LARGE:
            if done is not None:
                one.optimizer.zero_grad(set_to_none=True)
                self._rewind.back()
            raise too_large or BatchTooLarge(one.name, 0, ELSEWHERE)
        return done

    def _attempt(self, one: Pass, crop: Axis | None, begin: Pieces) -> "tuple[_Gradients | None, BatchTooLarge | None]":
        try:
            if self._tensors is None:
                self._tensors = _on_device(self._model, self._batch)
            if not len(self._batch):  # of unequal ranks one may have nothing to do
                one.optimizer.zero_grad(set_to_none=True)
                self._rewind.mark()
                return _Gradients({}, {}, begin), None
            with onednn.left_aside(begin.without_onednn):
                done = _run_pass(one, self._tensors, self._batch, self._rewind, self._model.device, crop, begin)
        except BatchTooLarge as error:
            return None, error.with_traceback(None)
        self._tensors = {**self._tensors, **done.handed_on}
        return done, None


def _on_device(model: BaseModel, batch: Batch) -> MicroBatch:
    try:
        return model.feed_data(batch)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = first_line(error)
    release_memory(model.device)
    raise BatchTooLarge("data", len(batch), message)


def micro_batches(
    tensors: MicroBatch, samples: int, largest: int, step_samples: int
) -> Iterator[tuple[dict[str, Tensor], float]]:
    """Split a batch into the fewest parts of at most ``largest`` samples, as equal as possible, with their weights.

    The weight of a part is its share of the step's samples, those of other ranks included: averaging the means of
    unequal parts would give the samples of the smaller part too much influence.
    """
    parts = math.ceil(samples / largest)
    start = 0
    for part in range(parts):
        stop = start + math.ceil((samples - start) / (parts - part))
        yield {name: tensor[start:stop] for name, tensor in tensors.items()}, (stop - start) / step_samples
        start = stop


@dataclass(frozen=True)
class _Gradients:
    """What computing the gradients of a pass gave: its loss terms, what it hands on, and how it came about."""

    terms: dict[str, Tensor]
    handed_on: dict[str, Tensor]
    pieces: Pieces
    failures: tuple[Failure, ...] = ()


def _largest(batch: Batch) -> int:
    """Return the samples of the largest forward pass under the plan of a batch."""
    return max(1, min(batch.plan.forward_batch_size, len(batch)))


def _run_pass(
    one: Pass,
    tensors: MicroBatch,
    batch: Batch,
    rewind: Rewind,
    device: torch.device,
    crop: Axis | None,
    begin: Pieces,
) -> _Gradients:
    """Compute the gradients of a pass, in smaller pieces as often as memory runs out; then on smaller crops."""
    largest, extent = math.ceil(len(batch) / begin.micro_batches), begin.extent
    if extent < batch.shape.extent:
        tensors = upper_left(tensors, batch.shape.extent, extent)
    failures: list[Failure] = []
    rewind.mark()
    while True:
        try:
            terms, handed_on = _accumulate_gradients(one, tensors, batch, largest)
            without_onednn = begin.without_onednn or onednn.is_left()
            ran = Pieces(math.ceil(len(batch) / largest), extent, without_onednn)
            return _Gradients(terms, handed_on, ran, tuple(failures))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            message = first_line(error)
        # Outside the handler: the error's traceback holds the tensors of the failed attempt.
        one.optimizer.zero_grad(set_to_none=True)
        rewind.back()
        release_memory(device)
        failed = largest
        if largest > 1 and one.splittable:
            largest = math.ceil(largest / 2)
        else:
            smaller = shrunk_after_oom(Plan.of(lq_size=extent), [crop]) if crop is not None else None
            if smaller is None:
                raise BatchTooLarge(one.name, largest, message)
            tensors, extent = upper_left(tensors, extent, smaller[LQ_SIZE]), smaller[LQ_SIZE]
        failures.append(Failure(one.name, failed, math.ceil(len(batch) / largest), message, extent, largest))


def _accumulate_gradients(
    one: Pass, tensors: MicroBatch, batch: Batch, largest: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the loss terms of the whole batch, and what the pass hands on."""
    one.optimizer.zero_grad(set_to_none=True)
    sums: dict[str, Tensor] = {}
    added: dict[str, list[Tensor]] = {}
    for part, weight in micro_batches(tensors, len(batch), largest, batch.step_samples):
        terms = one.loss(part)
        total = torch.stack(list(terms.values())).sum() * weight
        (one.scaler.scale(total) if one.scaler is not None else total).backward()  # type: ignore[no-untyped-call]
        for name, value in terms.items():
            weighted = value.detach().float() * weight
            sums[name] = sums[name] + weighted if name in sums else weighted
        for name in part.keys() - tensors.keys():
            added.setdefault(name, []).append(part[name].detach())
    handed_on = {name: pieces[0] if len(pieces) == 1 else torch.cat(pieces) for name, pieces in added.items()}
    return sums, handed_on


def _read_and_clip(
    one: Pass, terms: Mapping[str, Tensor], max_norm: float | None, batch: Batch
) -> tuple[dict[str, float], float]:
    """Bring losses and gradient norm to the host, refuse what is not finite, clip.

    All figures travel at once: on CUDA it is the one place of a pass that waits for the device.
    """
    if one.scaler is not None:
        one.scaler.unscale_(one.optimizer)
    parameters = parameters_of(one)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    total = torch.nn.utils.get_total_norm(gradients)
    *values, norm = torch.stack([*terms.values(), total]).tolist()
    losses = dict(zip(terms, values, strict=True))
    for name, value in losses.items():
        if not math.isfinite(value):
            raise NonFiniteError(_non_finite(f"loss term '{name}' of pass '{one.name}' is {value}", batch))
    # With loss scaling an overflow is expected now and then; the scaler skips that step and lowers its factor.
    if one.scaler is None and not math.isfinite(norm):
        raise NonFiniteError(_non_finite(f"the gradient norm of pass '{one.name}' is {norm}", batch))
    if max_norm is not None and norm > max_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, total)
    return losses, norm


def _step(one: Pass) -> bool:
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
        raise OptimizerOutOfMemory(one.name, str(error)) from None


class OptimizerOutOfMemory(TrainautoError):  # noqa: N818
    """The optimizer's own step ran out of memory: some weights have moved, others have not, so nothing is repeated."""

    def __init__(self, pass_name: str, message: str) -> None:
        super().__init__(
            f"the optimizer of pass '{pass_name}' ran out of memory in its step: {message.splitlines()[0]}\n"
            "  Its state does not depend on crop or batch: take a smaller network, an optimizer with less state (SGD), "
            "or a larger budget."
        )


class AnotherRankLeft(TrainautoError):  # noqa: N818
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
