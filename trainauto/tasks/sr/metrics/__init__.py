"""Metrics by name."""

from trainauto.tasks.sr.metrics import lpips_dists, psnr_ssim
from trainauto.tasks.sr.metrics.registry import METRICS, Metric, better_is_higher, register_metric

__all__ = ["METRICS", "Metric", "better_is_higher", "lpips_dists", "psnr_ssim", "register_metric"]
