"""The gradients of one pass, on this rank: in as many pieces as memory asks for."""

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from trainauto.control.step_policy import shrunk_after_oom
from trainauto.core.batch import Batch
from trainauto.core.objectives import MicroBatch, Objective
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.records import MicrobatchSplit
from trainauto.core.workload import UnequalSamples, split, weight_of
from trainauto.distributed.communicator import Communicator
from trainauto.engine.handed_on import added_to, joined
from trainauto.engine.part_norms import PartNorms
from trainauto.engine.run_errors import SHOWN_NAMES
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step_outcome import DoesNotFit, Failure, Gradients
from trainauto.memory.monitor import onednn
from trainauto.memory.monitor.oom import shortage_in
from trainauto.memory.monitor.release import release_memory, repeatable
from trainauto.models.base_model import BaseModel

logger = logging.getLogger(__name__)


def on_device(model: BaseModel, batch: Batch) -> MicroBatch | DoesNotFit:
    """Return a batch where the model is, or what stands in for one without samples, if there is room for it."""
    try:
        return model.feed_data(batch if len(batch) or not batch.stand_in else replace(batch, tensors=batch.stand_in))
    except (RuntimeError, MemoryError) as error:
        message = shortage_in(error)
    release_memory(model.device)
    return DoesNotFit("data", len(batch), message, batch.shape.extent)


def as_planned(batch: Batch) -> MicrobatchSplit:
    """Return how a pass runs under the plan of a batch."""
    return planned_split(batch.plan, len(batch), batch.shape.extent, batch.share)


def planned_split(plan: Plan, samples: int, extent: int, share: float = 1.0) -> MicrobatchSplit:
    """Return how a pass of so many samples runs under a plan, on a rank with this share of its batch.

    Where the plan counts samples, no forward pass holds more than it says; where it does not, what there is is divided.
    """
    forward = int(plan.forward_batch_size * share) if BATCH_SIZE in plan else math.ceil(samples / plan.micro_batches)
    largest = max(1, min(forward, samples))
    return MicrobatchSplit(math.ceil(samples / largest), extent)


def gradients_without_samples(
    objective: Objective,
    tensors: MicroBatch,
    batch: Batch,
    snapshot: StepSnapshot,
    device: torch.device,
    split: MicrobatchSplit,
    ranks: Communicator,
) -> Gradients | DoesNotFit:
    """Return what a rank without samples has: no gradient of its own, and a scaler that is ready to step.

    Args:
        objective: the pass.
        tensors: ``stand_in`` of the batch, on the device.
        batch: has no samples.
        snapshot: of the step.
        device: of the model.
        split: how the pass runs.
        ranks: who train the step.
    """
    _forget_gradients(objective)
    snapshot.take()
    if ranks.reduces_in_backward:
        try:
            _stand_in(objective, tensors, batch, 1, ranks)
        except (RuntimeError, MemoryError) as error:
            return DoesNotFit(objective.name, 1, shortage_in(error), batch.shape.extent)
    if objective.notes is not None:
        objective.notes.begin()
    if objective.scaler is not None:  # it makes its factor with the first loss, and this rank may have had none
        objective.scaler.scale(torch.zeros(1, device=device))
    return Gradients({}, {}, split)


def passes_of_all(batch: Batch, ranks: Communicator) -> int:
    """Return the most forward passes that any rank has in a step that is shared equally: to one sample."""
    fewest, rest = divmod(batch.step_samples, ranks.world_size)
    counts = {fewest, fewest + bool(rest)} - {0}
    # More samples may be fewer passes: 4 in passes of 2 are 2, and 3 in passes of 1 are 3, where a plan says 3 passes.
    return max(planned_split(batch.plan, count, batch.shape.extent).micro_batches for count in counts)


def divided(
    objective: Objective, planned: MicrobatchSplit, batch: Batch, snapshot: StepSnapshot, ranks: Communicator
) -> MicrobatchSplit:
    """Return how a pass runs whose parts' gradients are to be compared: in two, where it ran whole and that is free."""
    is_whole = planned.micro_batches == 1 and ranks.world_size == 1
    if is_whole and len(batch) > 1 and objective.splittable and not snapshot.changing_by_piece:
        return replace(planned, micro_batches=2)
    return planned


def compute_gradients(
    objective: Objective,
    tensors: MicroBatch,
    batch: Batch,
    snapshot: StepSnapshot,
    device: torch.device,
    size: Axis | None,
    begin: MicrobatchSplit,
    ranks: Communicator,
    step_weight: float,
    *,
    make_norms: Callable[[], PartNorms] | None = None,
) -> Gradients | DoesNotFit:
    """Compute the gradients of a pass, in smaller pieces where memory runs out, then of smaller samples (``size``).

    ``make_norms`` makes what sees the gradients of the pieces of an attempt, where they are to be compared.
    """
    largest, extent = math.ceil(len(batch) / begin.micro_batches), begin.extent
    failures, alone = list[Failure](), False
    if failed := _remember(objective, tensors, batch, snapshot, device):
        return failed
    while True:
        norms = make_norms() if make_norms is not None else None
        context = ranks, step_weight, alone, snapshot.next_part, norms
        try:
            with snapshot.one_pass():
                cut = _cut(tensors, batch, extent)
                terms, handed_on, told, differing = accumulate_gradients(objective, cut, batch, largest, *context)
            split = MicrobatchSplit(math.ceil(len(batch) / largest), extent, begin.without_onednn or onednn.is_left())
            _say_changes(objective, snapshot, begin, split)
            return Gradients(terms, handed_on, split, tuple(failures), differing, told, norms)
        except (RuntimeError, MemoryError) as error:
            message = shortage_in(error)
        # Outside the handler: the error's traceback holds the tensors of the failed attempt.
        objective.optimizer.zero_grad(set_to_none=True)
        release_memory(device)  # first: what is put back may need some of it
        if not ranks.reduces_in_backward:
            repeatable(snapshot.restore, device)
        if ranks.reduces_in_backward:
            return DoesNotFit(objective.name, largest, message, batch.shape.extent)
        failed_samples = largest
        if largest > 1 and objective.splittable:
            largest = math.ceil(largest / 2)
        elif objective.splittable and not alone and len(batch) > 1 and isinstance(batch.workload, UnequalSamples):
            alone = True  # where there was room for one of the largest, a part may have held several small ones
        else:
            smaller = shrunk_after_oom(Plan.of(**{size.name: extent}), [size]) if size is not None else None
            if smaller is None:
                repeatable(snapshot.give_back, device)
                return DoesNotFit(objective.name, largest, message, batch.shape.extent)
            extent = smaller.size
        pieces, is_cut = math.ceil(len(batch) / largest), extent < batch.shape.extent
        failures.append(Failure(objective.name, failed_samples, pieces, message, extent, largest, is_cut))


def _stand_in(objective: Objective, tensors: MicroBatch, batch: Batch, largest: int, ranks: Communicator) -> None:
    """Run one sample, with weight 0, as often as other ranks have a forward pass more than this one.

    Weights that are spread over ranks are gathered in every pass, by all of them; gradients that are summed in the
    backward pass are summed in the last one.
    """
    own = math.ceil(len(batch) / largest)
    sample = batch.workload.part(tensors, 0, 1)
    lacking = passes_of_all(batch, ranks) - own
    for number in range(1, lacking + 1):
        is_last = not own and number == lacking
        with nullcontext() if is_last or objective.without_sum is None else objective.without_sum():
            (_sum_of(objective.loss(sample)) * 0.0).backward()  # type: ignore[no-untyped-call]


def _cut(tensors: MicroBatch, batch: Batch, extent: int) -> MicroBatch:
    """Return samples of a batch no larger than an extent, anew in each attempt: cut copies may have changed."""
    return batch.workload.shrink(tensors, batch.shape.extent, extent) if extent < batch.shape.extent else tensors


def _say_changes(
    objective: Objective, snapshot: StepSnapshot, planned: MicrobatchSplit, split: MicrobatchSplit
) -> None:
    """Say once that what forward passes change has changed with each piece of a batch."""
    pieces = split.micro_batches
    if pieces > planned.micro_batches and not snapshot.said_pieces and (names := snapshot.changing_by_piece):
        snapshot.said_pieces = True
        more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
        logger.warning(
            "forward passes of '%s' change %s%s: a batch that runs in %d micro-batches changes them %d times, "
            "where the whole batch would once; with splittable=False it is drawn again as smaller batches",
            objective.name,
            ", ".join(names[:SHOWN_NAMES]),
            more,
            pieces,
            pieces,
        )


def _remember(
    objective: Objective, tensors: MicroBatch, batch: Batch, snapshot: StepSnapshot, device: torch.device
) -> DoesNotFit | None:
    """Take a snapshot; say so where not even that fits."""
    try:
        snapshot.take(tensors, batch.tensors)
    except (RuntimeError, MemoryError) as error:
        message = shortage_in(error)
    else:
        return None
    release_memory(device)
    return DoesNotFit(objective.name, len(batch), message, batch.shape.extent)


def accumulate_gradients(
    objective: Objective,
    tensors: MicroBatch,
    batch: Batch,
    largest: int,
    ranks: Communicator,
    step_weight: float,
    alone: bool = False,
    before_next: Callable[[MicroBatch], None] | None = None,
    norms: PartNorms | None = None,
) -> tuple[dict[str, Tensor], dict[str, Any], tuple[str, ...], frozenset[str]]:
    """Compute the gradients of a batch, part by part.

    ``before_next`` is called with each part of the batch but the first, before its loss; ``norms`` sees the gradients
    of each.

    Returns:
        The loss terms of the whole batch, as shares of the step's; what the pass hands on; the names of terms without
        gradients, which are only told; the names of what its parts disagreed on (:func:`joined`).
    """
    # Where the backward pass averages over ranks, the sum of weighted parts is that many times as large.
    factor = ranks.world_size if ranks.reduces_in_backward else 1
    _forget_gradients(objective)
    if ranks.reduces_in_backward:
        _stand_in(objective, tensors, batch, largest, ranks)
    if objective.notes is not None:
        objective.notes.begin()
    sums: dict[str, Tensor] = {}
    told: tuple[str, ...] = ()
    added: list[dict[str, Any]] = []
    weights: list[float] = []
    parts = split(batch.workload, tensors, len(batch), largest, alone=alone, by_count=ranks.reduces_in_backward)
    for done, part in parts:
        if added and before_next is not None:
            before_next(part)
        # Averaging the means of unequal parts would give the samples of the smaller part too much influence.
        weight = weight_of(batch.workload, part) / step_weight if step_weight else 0.0
        weights.append(weight)
        given = dict(part)
        if not weight and not ranks.reduces_in_backward:  # a mean over nothing is no number
            with torch.no_grad():
                objective.loss(part)
            added.append(added_to(part, given))
            continue
        keep = objective.without_sum if objective.without_sum is not None and done < len(batch) else nullcontext
        with keep():
            terms = objective.loss(part)
            total = _sum_of(terms) * (weight * factor)
            scaler = objective.scaler
            with norms.watching(part, weight * factor) if norms is not None else nullcontext():
                (_scaled(scaler, total) if scaler is not None else total).backward()  # type: ignore[no-untyped-call]
        told = tuple(name for name, value in terms.items() if not value.requires_grad)
        for name, value in terms.items():
            # A mean over nothing is no number, and its gradients are 0.
            weighted = value.detach().float() * weight if weight else torch.zeros((), device=value.device)
            sums[name] = sums[name] + weighted if name in sums else weighted
        added.append(added_to(part, given))
    handed_on, differing = joined(batch.workload, added, weights)
    return sums, handed_on, told, differing


def _scaled(scaler: GradScaler, total: Tensor) -> Tensor:
    """Return a loss times the factor, which the first one makes: anew where memory ran out before it was whole."""
    if scaler._growth_tracker is None:
        scaler._scale = None
    return scaler.scale(total)


def _forget_gradients(objective: Objective) -> None:
    parameters = (parameter for group in objective.optimizer.param_groups for parameter in group["params"])
    if any(parameter.grad is not None for parameter in parameters):
        objective.optimizer.zero_grad(set_to_none=True)


def _sum_of(terms: Mapping[str, Tensor]) -> Tensor:
    """Return the sum of loss terms; those without gradients are not minimised."""
    values = [term for term in terms.values() if term.requires_grad] or list(terms.values())
    return values[0] if len(values) == 1 else torch.stack(values).sum()
