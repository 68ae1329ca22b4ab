"""Losses by name."""

from trainauto.tasks.sr.losses import (
    artifact_loss,
    color_loss,
    flip_loss,
    frequency_loss,
    hsluv_loss,
    mssim_loss,
    neosr_loss,
    perceptual_loss,
    pixel_loss,
    quality_loss,
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
    "artifact_loss",
    "color_loss",
    "flip_loss",
    "frequency_loss",
    "hsluv_loss",
    "mssim_loss",
    "neosr_loss",
    "perceptual_loss",
    "pixel_loss",
    "quality_loss",
    "ssim_loss",
    "structure_loss",
]
