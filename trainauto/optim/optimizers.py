"""Optimizers by name, with the arguments torch gives them, and what options set of them."""

import inspect
from typing import Any

from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer

from trainauto.optim.registry import OPTIMIZERS

OPTIMIZERS.register("Adam")(Adam)
OPTIMIZERS.register("AdamW")(AdamW)
OPTIMIZERS.register("NAdam")(NAdam)
OPTIMIZERS.register("SGD")(SGD)

OF_SCHEDULES = ("lr", "initial_lr")
"""What the rate's schedule keeps in a group."""


def settings_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return what options set of each group: what the class takes. It may keep what it has counted there, too."""
    taken = {*inspect.signature(type(optimizer).__init__).parameters, *OF_SCHEDULES} - {"params"}
    taken |= {name.removeprefix("adamw_") for name in taken}  # of those weights that Muon leaves to AdamW
    return [{key: value for key, value in group.items() if key in taken} for group in optimizer.param_groups]
