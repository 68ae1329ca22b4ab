"""Registry of losses."""

from torch import nn

from trainauto.core.registry import Registry

LOSSES: Registry[type[nn.Module]] = Registry("loss")
"""Classes whose instances map (prediction, target) to a scalar, see :mod:`trainauto.tasks.sr.losses.base`.

The loss between a generator and its discriminator is one of them by name only: it is a
:class:`~trainauto.tasks.sr.losses.gan_loss.GANLoss`, and the model calls it otherwise."""
