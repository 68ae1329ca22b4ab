"""Which loss terms have gradients that are no finite numbers, looked for once a pass has failed by them."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from trainauto.core.batch import Batch
from trainauto.core.objectives import MicroBatch, Objective
from trainauto.core.records import MicrobatchSplit
from trainauto.core.workload import split
from trainauto.engine.snapshot import StepSnapshot


def terms_at_fault(
    objective: Objective,
    parameters: Sequence[nn.Parameter],
    tensors: MicroBatch,
    batch: Batch,
    ran: MicrobatchSplit,
    snapshot: StepSnapshot,
) -> list[str]:
    """Run a pass once more, and look at the gradients of each of its terms by itself.

    The run is about to end: where this fails too (there may be no room, or a graph that runs once), no term is named.

    Args:
        objective: the pass, whose terms are finite.
        parameters: what it changes.
        tensors: the batch, on the device.
        batch: the same as the loader gave it.
        ran: in which pieces the pass ran.
        snapshot: the moment at which it began.

    Returns:
        The names of the terms with a gradient that is NaN or Inf, in order; none where only the norm is too large.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    largest = math.ceil(len(batch) / ran.micro_batches)
    found: dict[str, None] = {}
    try:
        snapshot.restore()
        if ran.extent < batch.shape.extent:
            tensors = batch.workload.shrink(tensors, batch.shape.extent, ran.extent)
        with snapshot.one_pass():
            for _, part in split(batch.workload, tensors, len(batch), largest):
                for name, term in objective.loss(part).items():
                    if term.requires_grad and name not in found:
                        gradients = torch.autograd.grad(term, trained, retain_graph=True, allow_unused=True)
                        if not all(bool(one.isfinite().all()) for one in gradients if one is not None):
                            found[name] = None
    except Exception:  # what is reported is the failure before this one
        return []
    return list(found)
