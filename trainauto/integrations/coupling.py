"""What couples the samples of a batch, so that its parts are not what the whole is."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def coupling_in(module: nn.Module) -> str | None:
    """Name the first layer of a module that computes with statistics of its batch; ``None`` where none does.

    Losses that couple samples (contrastive, relativistic) cannot be seen: they have to be declared.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and (layer.training or not layer.track_running_stats):
            return f"{name or 'the model'} ({type(layer).__name__})"
    return None
