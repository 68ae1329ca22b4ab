"""The optimizer of transformers' Trainer, for runs whose options are in its words."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

NOT_DECAYING = ("norm", "bias")
"""Parts of the names of weights that do not decay, as in transformers' Trainer."""


def trainer_adamw(network: nn.Module, learning_rate: float, weight_decay: float) -> Optimizer:
    """Return the optimizer that transformers' Trainer makes: a fused AdamW, of two groups where weights decay."""
    return torch.optim.AdamW(decaying_groups(network, weight_decay), lr=learning_rate, fused=True)


def is_kept(name: str) -> bool:
    """Return whether the weight of that name does not decay."""
    return any(part in name.lower() for part in NOT_DECAYING)


def decaying_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return the trained weights in two groups, of which the second does not decay."""
    weights = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
    kept = [weight for name, weight in weights.items() if is_kept(name)]
    decaying = [weight for name, weight in weights.items() if not is_kept(name)]
    groups = [{"params": decaying, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
