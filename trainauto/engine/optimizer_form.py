"""The form of an optimizer's step: all weights at once (``foreach``, ``fused``), or one weight after another.

All at once is torch's default on a GPU. It is faster by the launches of kernels that it saves. Its temporaries are as
large as all weights (Adam) or twice as large (with L2 regularisation): where a step runs out of memory among them, some
weights have moved and others have not. One after another, they are as large as the largest weight.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from trainauto.distributed.communicator import Communicator


def take_loop_form(optimizers: Iterable[Optimizer]) -> bool:
    """Have optimizers take one weight after another; say whether any took all weights at once before.

    The two forms differ in the last bits. Fused optimizers keep theirs: they need no temporaries.
    """
    changed = False
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if not group.get("fused") and takes_all_at_once(group):
                group["foreach"], changed = False, True
    return changed


def takes_all_at_once(group: Mapping[str, Any]) -> bool:
    """Say whether one kernel steps many weights of a group: as asked for, or by torch's default."""
    if group.get("fused") or group.get("foreach") is not None:
        return bool(group.get("fused") or group["foreach"])
    supported = torch_optimizer._get_foreach_kernels_supported_devices()  # type: ignore[attr-defined]
    return "foreach" in group and any(weight.device.type in supported for weight in group["params"])


def agree_on_form(optimizers: Iterable[Optimizer], ranks: Communicator) -> None:
    """Have a group take one weight after another on all ranks where it does on one: weights would drift apart.

    Every rank must ask.
    """
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    forms = [takes_all_at_once(group) for group in groups]
    everywhere = [message["forms"] for message in ranks.all_gather_object({"forms": forms})]
    for group, mine, of_all in zip(groups, forms, zip(*everywhere, strict=True), strict=True):
        if mine and not all(of_all):
            group["foreach"] = False
