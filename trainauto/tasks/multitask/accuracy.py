"""How often a model is right, by task."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Collate = Callable[[list[Any]], Mapping[str, Any]]
"""What makes a batch of samples: arguments of the model, ``task_ids`` and ``labels`` among them, and others."""


def accuracy_by_task(
    model: nn.Module, dataset: Any, collate: Collate, tasks: Sequence[str], *, batch_size: int = 256
) -> dict[str, float]:
    """Return the share of samples of each task whose prediction is their label; tasks without samples are left out.

    Args:
        model: gives ``predictions`` (N,), and gets of a batch what its ``forward`` names; it is left in the mode it was
            in.
        dataset: samples by number.
        collate: makes batches of them.
        tasks: names in the order of ``task_ids``.
        batch_size: samples of a batch.

    Raises:
        TypeError: the model gives no ``predictions``.
    """
    right = torch.zeros(len(tasks), dtype=torch.int64)
    seen = torch.zeros(len(tasks), dtype=torch.int64)
    was_training = model.training
    model.eval()
    try:
        for begin in range(0, len(dataset), batch_size):
            samples = [dataset[place] for place in range(begin, min(begin + batch_size, len(dataset)))]
            batch = collate(samples)
            is_right = (_predictions(model, batch) == batch["labels"].view(-1)).long()
            task_ids = batch["task_ids"].view(-1)
            right.index_add_(0, task_ids, is_right)
            seen.index_add_(0, task_ids, torch.ones_like(is_right))
    finally:
        model.train(was_training)
    counted = zip(tasks, right.tolist(), seen.tolist(), strict=True)
    return {name: hits / samples for name, hits, samples in counted if samples}


def _predictions(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    device = next(model.parameters()).device
    wanted = inspect.signature(model.forward).parameters
    inputs = {name: value.to(device) for name, value in batch.items() if name in wanted and isinstance(value, Tensor)}
    with torch.no_grad():
        output = model(**inputs)
    predictions = output.get("predictions") if isinstance(output, Mapping) else getattr(output, "predictions", None)
    if predictions is None:
        raise TypeError(f"{type(model).__name__} gives no predictions: accuracy by task cannot be counted")
    counted: Tensor = predictions.detach().cpu().view(-1)
    return counted


def accuracy_text(accuracies: Mapping[str, float]) -> str:
    """Return accuracies in words: ``T1 99.8 %, T2 98.4 %``."""
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in accuracies.items())
