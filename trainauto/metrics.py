"""The place where plugins find these names; what they are lies in :mod:`trainauto.tasks.sr.metrics`."""

from trainauto.tasks.sr.metrics import METRICS, Metric, better_is_higher, psnr_ssim, register_metric

__all__ = ["METRICS", "Metric", "better_is_higher", "psnr_ssim", "register_metric"]
