"""What couples the samples of a batch, so that its parts are not what the whole is."""

import logging
from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

logger = logging.getLogger(__name__)


def coupling_in(module: nn.Module) -> str | None:
    """Name the first layer of a module that computes with statistics of its batch; ``None`` where none does.

    Losses that couple samples (contrastive, relativistic) cannot be seen: they have to be declared.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and (layer.training or not layer.track_running_stats):
            return f"{name or 'the model'} ({type(layer).__name__})"
    return None


def say_coupling(module: nn.Module, declared: Sequence[bool | None]) -> None:
    """Say in the log that batches will not run in parts, where it is not declared whether they may."""
    layer = coupling_in(module)
    if layer and None in declared:
        logger.info(
            "%s computes with statistics of its batch: a batch that runs out of memory comes again as smaller batches, "
            "not in parts",
            layer,
        )
