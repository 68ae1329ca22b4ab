"""At which weights of a model gradients of tasks are compared: named by a person, or found with one sample a task."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.engine.snapshot import StepSnapshot
from trainauto.tasks.multitask.losses.shared_layer import last_shared_weights, weights_of

Losses = Callable[[nn.Module, Mapping[str, Any]], tuple[Tensor, Tensor]]
"""Computes the loss of each sample of a batch, and which samples are of each task: (N,) and (tasks, N)."""


def shared_weights(
    model: nn.Module, layer: str | None, one_of_each: Callable[[], Mapping[str, Any]], losses: Losses
) -> tuple[str, ...]:
    """Return the names of the weights at which gradients of tasks are compared.

    Where no layer is named, one forward pass with a sample of each task says which layers all of them train; buffers
    and random generators are as before.

    Args:
        model: that is trained.
        layer: named by a person; ``None`` finds it.
        one_of_each: returns a batch with a sample of each task, on the device of the model.
        losses: of the model.

    Raises:
        InputError: there is no such layer, or tasks share none.
    """
    if layer is not None:
        return weights_of(model, layer)
    device = next(model.parameters()).device
    batch = one_of_each()
    snapshot = StepSnapshot([model], device)
    snapshot.take()
    was_training = model.training
    model.train()
    try:
        with torch.enable_grad():
            return last_shared_weights(model, *losses(model, batch))
    finally:
        model.train(was_training)
        snapshot.restore()
