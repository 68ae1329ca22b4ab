"""BatchNorm layers that get a single value a channel: what is left of a batch, or of an epoch, may be one sample.

One value has no variance, and torch refuses it in training. Such a layer then normalises by its running statistics, as
it does in evaluation, and learns its scale and shift all the same.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.utils.hooks import RemovableHandle

logger = logging.getLogger(__name__)


class SingleValues:
    """Lets the BatchNorm layers of a module take single values, while batches of one sample are trained.

    Layers without running statistics cannot, nor those that ranks synchronize: their statistics are of other samples.

    Attributes:
        speaks: whether the next single value is said in the log; once is enough, and what only measures is not said.

    Args:
        module: which.
    """

    def __init__(self, module: nn.Module) -> None:
        self.speaks = False
        self._layers = [
            (name, layer)
            for name, layer in module.named_modules()
            if isinstance(layer, _BatchNorm) and not isinstance(layer, SyncBatchNorm) and layer.track_running_stats
        ]
        self._handles: list[RemovableHandle] = []

    def allow(self, *, allowed: bool) -> None:
        """Let layers take single values from here on, or no more.

        Layers have hooks meanwhile, and not only in the forward pass: checkpointed blocks run again in the backward
        pass.
        """
        if allowed == bool(self._handles):
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for name, layer in self._layers if allowed else ():
            self._handles.append(layer.register_forward_pre_hook(_Evaluates(self, name)))
            self._handles.append(layer.register_forward_hook(_trains_again, always_call=True))

    def say(self, name: str, layer: nn.Module) -> None:
        """Say once which layer normalises a single value."""
        if self.speaks:
            self.speaks = False
            logger.warning(
                "a batch of one sample gives %s (%s) a single value a channel, which has no variance: such values are "
                "normalised by the running statistics, as in evaluation",
                name or "the model",
                type(layer).__name__,
            )


@contextmanager
def single_values_allowed(module: nn.Module) -> Iterator[None]:
    """Let the BatchNorm layers of a module take single values inside, without a word."""
    values = SingleValues(module)
    values.allow(allowed=True)
    try:
        yield
    finally:
        values.allow(allowed=False)


class _Evaluates:
    """Has a layer evaluate a single value a channel."""

    def __init__(self, owner: SingleValues, name: str) -> None:
        self._owner, self._name = owner, name

    def __call__(self, layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        (features, *_) = arguments
        if layer.training and isinstance(features, Tensor) and features.ndim > 1 and _values_a_channel(features) == 1:
            layer.training = False
            vars(layer)[TRAINS] = True
            self._owner.say(self._name, layer)


TRAINS = "_trainauto_trains"
"""Attribute of a layer that evaluates for one call."""


def _trains_again(layer: nn.Module, _arguments: Any, _output: Any) -> None:
    if vars(layer).pop(TRAINS, False):
        layer.training = True


def _values_a_channel(features: Tensor) -> int:
    return features.numel() // max(1, features.shape[1])


REFUSALS = (
    "Expected more than 1 value per channel when training",
    "Expected more than 1 spatial element when training",
)
"""How torch refuses statistics of one value: of BatchNorm, of InstanceNorm."""


def refuses_single_value(error: ValueError) -> bool:
    """Say whether a layer refuses to take statistics of one value."""
    return str(error).startswith(REFUSALS)
