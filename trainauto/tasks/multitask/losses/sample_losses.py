"""The loss of each sample of a batch: the model's own, or what follows from its logits and the labels."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.multitask.batches.padded_rows import NOT_LEARNED

ADVICE = "Have forward return sample_losses, a loss for each sample: {'loss': ..., 'sample_losses': (N,)}; or logits."


def losses_of_samples(output: Any, labels: Tensor | None, samples: int, *, shifts_labels: bool = False) -> Tensor:
    """Return the loss of each sample, (N,), in float32 or better.

    - ``sample_losses`` of the output, (N,), where it has them;
    - else cross entropy of logits (N, C) with labels (N,), or of (N, T, C) with (N, T): of a sample, the mean over its
      labels that count; 0 where none does;
    - else, of labels that are no whole numbers, or where logits have one value for each, the squared error, of a sample
      the mean over its values. One class alone leaves nothing to tell apart, and numbers to learn may all be whole ones
      in some batches.

    Args:
        output: of the model: a mapping, or what has attributes.
        labels: of the batch; ``None`` where it has none.
        samples: N.
        shifts_labels: a logit is for the label after it, as in causal language models.

    Raises:
        InputError: none of these is there, or has another shape.
    """
    own = _part_of(output, "sample_losses")
    if own is not None:
        if own.shape != (samples,):
            raise InputError(
                Problem(
                    f"sample_losses of the model have the shape {tuple(own.shape)} for {samples} samples",
                    advice="They are one loss for each sample: average what a sample has several of.",
                )
            )
        return own.float() if own.dtype in (torch.float16, torch.bfloat16) else own
    logits = _part_of(output, "logits")
    if logits is None or labels is None:
        lacks = "its output has neither sample_losses nor logits" if logits is None else "the batch has no labels"
        raise InputError(Problem(f"the loss of each sample cannot be told: {lacks}", advice=ADVICE))
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    if labels.is_floating_point() or logits.shape == (*labels.shape, 1):
        return _squared_errors(logits, labels, samples)
    return _cross_entropies(logits, labels, shifts_labels=shifts_labels)


def _part_of(output: Any, name: str) -> Tensor | None:
    value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
    return value if isinstance(value, Tensor) else None


def _cross_entropies(logits: Tensor, labels: Tensor, *, shifts_labels: bool) -> Tensor:
    if logits.ndim == labels.ndim + 1 == 3 and shifts_labels:
        logits, labels = logits[:, :-1], labels[:, 1:]
    if logits.ndim != labels.ndim + 1 or logits.shape[:-1] != labels.shape:
        raise InputError(
            Problem(
                f"logits of the shape {tuple(logits.shape)} do not go with labels of the shape {tuple(labels.shape)}",
                advice=ADVICE,
            )
        )
    losses = functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=NOT_LEARNED
    ).view(labels.shape)
    if labels.ndim == 1:
        return losses
    counted = labels.ne(NOT_LEARNED).flatten(1).sum(1)
    return losses.flatten(1).sum(1) / counted.clamp(min=1)


def _squared_errors(logits: Tensor, labels: Tensor, samples: int) -> Tensor:
    if logits.numel() != labels.numel():
        raise InputError(
            Problem(
                f"logits of the shape {tuple(logits.shape)} do not go with numbers of the shape {tuple(labels.shape)}",
                advice=ADVICE,
            )
        )
    squares = (logits.reshape(samples, -1) - labels.reshape(samples, -1)).square()
    if labels.is_floating_point():
        return squares.mean(1)
    counts = labels.reshape(samples, -1).ne(NOT_LEARNED)
    return torch.where(counts, squares, torch.zeros_like(squares)).sum(1) / counts.sum(1).clamp(min=1)
