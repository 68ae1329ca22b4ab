"""Registry of losses."""

from torch import nn

from trainauto.core.registry import Registry

LOSSES: Registry[type[nn.Module]] = Registry("loss")
"""Classes whose instances map (prediction, target) to a scalar, see :mod:`trainauto.losses.base`."""
