"""The place where plugins find these names; what they are lies in :mod:`trainauto.tasks.sr.losses`."""

from trainauto.tasks.sr.losses import LOSSES, GANLoss, WeightedLoss, pixel_loss, ssim_loss

__all__ = ["LOSSES", "GANLoss", "WeightedLoss", "pixel_loss", "ssim_loss"]
