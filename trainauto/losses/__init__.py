"""Losses by name."""

from trainauto.losses import pixel_loss, ssim_loss
from trainauto.losses.base import WeightedLoss
from trainauto.losses.gan_loss import GANLoss
from trainauto.losses.registry import LOSSES

__all__ = ["LOSSES", "GANLoss", "WeightedLoss", "pixel_loss", "ssim_loss"]
