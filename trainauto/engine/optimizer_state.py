"""Optimizer state before the first step."""

from collections.abc import Iterable

import torch
from torch.optim import Optimizer


def make_optimizer_state(optimizers: Iterable[Optimizer]) -> None:
    """Allocate what optimizers keep for each weight, as zeros at step 0, and change no weight.

    They allocate it in their first step, after the peak of the backward pass was measured; running out of memory there
    could not be repeated. Optimizers that hold state already (a resumed run) are left alone.
    """
    for optimizer in optimizers:
        if not optimizer.state:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.zeros_like(parameter)
            empty_step(optimizer)
            optimizer.zero_grad(set_to_none=True)


def empty_step(optimizer: Optimizer) -> None:
    """Step with zero gradients at learning rate 0, then zero the state: of a new optimizer only memory is taken."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.zero_()
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                value.zero_()
            elif name == "step":
                state[name] = 0
