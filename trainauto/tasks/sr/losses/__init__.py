"""Losses by name."""

from trainauto.tasks.sr.losses import (
    color_loss,
    frequency_loss,
    hsluv_loss,
    mssim_loss,
    pixel_loss,
    ssim_loss,
    structure_loss,
)
from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.gan_loss import GANLoss
from trainauto.tasks.sr.losses.registry import LOSSES

__all__ = [
    "LOSSES",
    "GANLoss",
    "WeightedLoss",
    "color_loss",
    "frequency_loss",
    "hsluv_loss",
    "mssim_loss",
    "pixel_loss",
    "ssim_loss",
    "structure_loss",
]
