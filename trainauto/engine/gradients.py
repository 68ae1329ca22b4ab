"""The gradients of one pass, on this rank: in as many pieces as memory asks for."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from trainauto.control.step_policy import shrunk_after_oom
from trainauto.core.batch import Batch
from trainauto.core.objectives import MicroBatch, Objective
from trainauto.core.plan import LQ_SIZE, Axis, Plan
from trainauto.core.records import MicrobatchSplit
from trainauto.distributed.communicator import Communicator
from trainauto.engine.snapshot import BatchTooLargeError, StepSnapshot, crop_top_left, first_line
from trainauto.memory.monitor import onednn
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.models.base_model import BaseModel


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


def on_device(model: BaseModel, batch: Batch) -> MicroBatch:
    """Return a batch where the model is.

    Raises:
        BatchTooLargeError: there is no room for it.
    """
    try:
        return model.feed_data(batch)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = first_line(error)
    release_memory(model.device)
    raise BatchTooLargeError("data", len(batch), message)


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
class Gradients:
    """What computing the gradients of a pass gave: its loss terms, what it hands on, and how it came about."""

    terms: dict[str, Tensor]
    handed_on: dict[str, Tensor]
    pieces: MicrobatchSplit
    failures: tuple[Failure, ...] = ()


def largest_forward(batch: Batch) -> int:
    """Return the samples of the largest forward pass under the plan of a batch."""
    return max(1, min(int(batch.plan.forward_batch_size * batch.share), len(batch)))


def compute_gradients(
    one: Objective,
    tensors: MicroBatch,
    batch: Batch,
    rewind: StepSnapshot,
    device: torch.device,
    crop: Axis | None,
    begin: MicrobatchSplit,
    ranks: Communicator,
) -> Gradients:
    """Compute the gradients of a pass, in smaller pieces as often as memory runs out; then on smaller crops."""
    largest, extent = math.ceil(len(batch) / begin.micro_batches), begin.extent
    if extent < batch.shape.extent:
        tensors = crop_top_left(tensors, batch.shape.extent, extent)
    failures: list[Failure] = []
    rewind.take()
    while True:
        try:
            terms, handed_on = accumulate_gradients(one, tensors, batch, largest, ranks)
            without_onednn = begin.without_onednn or onednn.is_left()
            ran = MicrobatchSplit(math.ceil(len(batch) / largest), extent, without_onednn)
            return Gradients(terms, handed_on, ran, tuple(failures))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            message = first_line(error)
        # Outside the handler: the error's traceback holds the tensors of the failed attempt.
        one.optimizer.zero_grad(set_to_none=True)
        rewind.restore()
        release_memory(device)
        if ranks.reduces_in_backward:
            raise BatchTooLargeError(one.name, largest, message)
        failed = largest
        if largest > 1 and one.splittable:
            largest = math.ceil(largest / 2)
        else:
            smaller = shrunk_after_oom(Plan.of(lq_size=extent), [crop]) if crop is not None else None
            if smaller is None:
                raise BatchTooLargeError(one.name, largest, message)
            tensors, extent = crop_top_left(tensors, extent, smaller[LQ_SIZE]), smaller[LQ_SIZE]
        failures.append(Failure(one.name, failed, math.ceil(len(batch) / largest), message, extent, largest))


def accumulate_gradients(
    one: Objective, tensors: MicroBatch, batch: Batch, largest: int, ranks: Communicator
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the loss terms of the whole batch, and what the pass hands on."""
    # Where the backward pass averages over ranks, the sum of weighted parts is that many times as large.
    factor = ranks.world_size if ranks.reduces_in_backward else 1
    done = 0
    one.optimizer.zero_grad(set_to_none=True)
    sums: dict[str, Tensor] = {}
    added: dict[str, list[Tensor]] = {}
    for part, weight in micro_batches(tensors, len(batch), largest, batch.step_samples):
        done += len(next(iter(part.values())))
        keep = one.without_sum if one.without_sum is not None and done < len(batch) else nullcontext
        with keep():
            terms = one.loss(part)
            total = torch.stack(list(terms.values())).sum() * (weight * factor)
            (one.scaler.scale(total) if one.scaler is not None else total).backward()  # type: ignore[no-untyped-call]
        for name, value in terms.items():
            weighted = value.detach().float() * weight
            sums[name] = sums[name] + weighted if name in sums else weighted
        for name in part.keys() - tensors.keys():
            added.setdefault(name, []).append(part[name].detach())
    handed_on = {name: pieces[0] if len(pieces) == 1 else torch.cat(pieces) for name, pieces in added.items()}
    return sums, handed_on
