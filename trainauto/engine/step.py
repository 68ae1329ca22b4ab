"""One optimizer step: every pass on micro-batches, weighted by samples, clipped, stepped."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trainauto.core.batch import Batch
from trainauto.core.errors import NonFiniteError
from trainauto.core.passes import MicroBatch, Pass
from trainauto.models.base_model import BaseModel

SHOWN_FILES = 8


@dataclass(frozen=True)
class StepOutcome:
    """What a step gave.

    Attributes:
        losses: value of each loss term of every pass, weighted by samples.
        grad_norms: gradient norm of each pass, before clipping.
        skipped: passes whose float16 gradients overflowed, so that their weights were left alone.
        seconds: how long it took.
    """

    losses: Mapping[str, float]
    grad_norms: Mapping[str, float]
    skipped: tuple[str, ...]
    seconds: float


def optimize_parameters(model: BaseModel, batch: Batch, *, max_norm: float | None = None) -> StepOutcome:
    """Train a batch: each pass of the model in order, then the moving averages.

    Args:
        model: what to train.
        batch: its plan says in how many micro-batches.
        max_norm: gradients with a larger norm are scaled down to it.

    Raises:
        NonFiniteError: a loss term or a gradient is NaN or Inf; the weights of that pass are untouched.
    """
    start = time.perf_counter()
    tensors = model.feed_data(batch)
    losses: dict[str, float] = {}
    norms: dict[str, float] = {}
    skipped: list[str] = []
    for one in model.passes():
        terms = _accumulate_gradients(one, tensors, batch)
        found, norms[one.name] = _read_and_clip(one, terms, max_norm, batch)
        losses |= found
        if not _step(one):
            skipped.append(one.name)
    model.after_step()
    return StepOutcome(losses, norms, tuple(skipped), time.perf_counter() - start)


def micro_batches(tensors: MicroBatch, samples: int, largest: int) -> Iterator[tuple[MicroBatch, float]]:
    """Split a batch into the fewest parts of at most ``largest`` samples, as equal as possible, with their weights.

    The weight of a part is its share of the samples: averaging the means of unequal parts would give the samples of the
    smaller part too much influence.
    """
    parts = math.ceil(samples / largest)
    start = 0
    for part in range(parts):
        stop = start + math.ceil((samples - start) / (parts - part))
        yield {name: tensor[start:stop] for name, tensor in tensors.items()}, (stop - start) / samples
        start = stop


def _accumulate_gradients(one: Pass, tensors: MicroBatch, batch: Batch) -> dict[str, Tensor]:
    one.optimizer.zero_grad(set_to_none=True)
    sums: dict[str, Tensor] = {}
    for part, weight in micro_batches(tensors, len(batch), batch.plan.forward_batch_size):
        terms = one.loss(part)
        total = torch.stack(list(terms.values())).sum() * weight
        (one.scaler.scale(total) if one.scaler is not None else total).backward()  # type: ignore[no-untyped-call]
        for name, value in terms.items():
            weighted = value.detach().float() * weight
            sums[name] = sums[name] + weighted if name in sums else weighted
    return sums


def _read_and_clip(
    one: Pass, terms: Mapping[str, Tensor], max_norm: float | None, batch: Batch
) -> tuple[dict[str, float], float]:
    """Bring losses and gradient norm to the host, refuse what is not finite, clip.

    All figures travel at once: on CUDA it is the one place of a pass that waits for the device.
    """
    if one.scaler is not None:
        one.scaler.unscale_(one.optimizer)
    parameters = [parameter for group in one.optimizer.param_groups for parameter in group["params"]]
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
    if one.scaler is None:
        one.optimizer.step()
        return True
    factor = one.scaler.get_scale()
    one.scaler.step(one.optimizer)
    one.scaler.update()
    return one.scaler.get_scale() >= factor


def _non_finite(what: str, batch: Batch) -> str:
    files = "\n".join(f"    {name}" for name in batch.names[:SHOWN_FILES])
    more = f"\n    ... and {len(batch) - SHOWN_FILES} more" if len(batch) > SHOWN_FILES else ""
    return (
        f"{what}\n  plan: {batch.plan}\n  files of the batch:\n{files}{more}\n"
        "  Try a lower rate, train.grad_clip, or float32 (use_amp: false); look at the files if they are unusual."
    )
