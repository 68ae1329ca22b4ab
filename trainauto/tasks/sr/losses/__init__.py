"""Losses by name."""

from trainauto.tasks.sr.losses import pixel_loss, ssim_loss
from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.gan_loss import GANLoss
from trainauto.tasks.sr.losses.registry import LOSSES

__all__ = ["LOSSES", "GANLoss", "WeightedLoss", "pixel_loss", "ssim_loss"]
