"""Losses that compare edges, their variance, and how images vary together."""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.color_spaces import luma, require_rgb
from trainauto.tasks.sr.losses.criteria import Criterion, criterion_named
from trainauto.tasks.sr.losses.registry import LOSSES

NCC_EPS = 1e-12
"""Least product of two variances: constant images correlate with nothing, and have a gradient."""


def sobel(image: Tensor) -> tuple[Tensor, Tensor]:
    """Return differences across and down of (N, 1, H, W) by Sobel's kernels, zeros around the image."""
    padded = F.pad(image, (1, 1, 1, 1))
    down = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    across = padded[..., :, :-2] + 2 * padded[..., :, 1:-1] + padded[..., :, 2:]
    return down[..., 2:] - down[..., :-2], across[..., 2:, :] - across[..., :-2, :]


@LOSSES.register("SobelEdgeLoss", "sobeledge")
class SobelEdgeLoss(WeightedLoss):
    """Mean squared difference of the edges of Y, by Sobel's kernels divided by 4."""

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean over both directions."""
        require_rgb(prediction, "SobelEdgeLoss")
        across, down = sobel(luma(prediction - target))  # all of it is linear
        return (across.square().mean() + down.square().mean()) / 32


@LOSSES.register("GradientVarianceLoss", "gradientvariance")
class GradientVarianceLoss(WeightedLoss):
    """How much edges vary within patches: blur has little variance.

    Source: Abrahamyan et al., "Gradient Variance Loss for Structure-Enhanced Image Super-Resolution", ICASSP 2022.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        patch_size: side of a patch, in px; what is left over at the lower and right edge does not count.
        criterion: ``l1``, ``l2`` or ``charbonnier``.

    Raises:
        ValueError: another criterion, or a patch of less than 2 px.
    """

    def __init__(self, loss_weight: float = 1.0, patch_size: int = 16, criterion: Criterion = "charbonnier") -> None:
        super().__init__(loss_weight)
        if patch_size < 2:
            raise ValueError(f"GradientVarianceLoss: patch_size must be at least 2, not {patch_size}")
        self.patch_size = self.smallest_px = patch_size
        self._compare = criterion_named(criterion, "GradientVarianceLoss")

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean difference of variances, of edges across and down."""
        require_rgb(prediction, "GradientVarianceLoss")
        pairs = zip(sobel(_grey(prediction)), sobel(_grey(target)), strict=True)
        return torch.stack([self._compare(self._variances(p), self._variances(t)).mean() for p, t in pairs]).sum()

    def _variances(self, edges: Tensor) -> Tensor:
        """Return the unbiased variance of each patch, (N, 1, patches down, patches across)."""
        side = self.patch_size
        down, across = edges.shape[-2] // side, edges.shape[-1] // side
        whole = edges[..., : down * side, : across * side]
        return whole.reshape(-1, 1, down, side, across, side).var(dim=(3, 5))


def _grey(image: Tensor) -> Tensor:
    """Return Y with the weight that MATLAB's rgb2gray gives red."""
    red, green, blue = image.chunk(3, dim=1)
    return 0.2989 * red + 0.5870 * green + 0.1140 * blue


@LOSSES.register("NCCLoss", "ncc", "ncc_loss")
class NCCLoss(WeightedLoss):
    """One minus the normalised cross-correlation, mapped to 0 to 1.

    As in traiNNer-redux and neosr, a batch is laid out as C rows without regard to samples, so that samples depend on
    each other and a batch that runs out of memory cannot be split into micro-batches.
    """

    couples_samples = True

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return 1 - (r + 1) / 2 of the mean correlation r of the rows."""
        x, y = (image.reshape(image.shape[1], -1) for image in (prediction, target))
        x, y = x - x.mean(dim=1, keepdim=True), y - y.mean(dim=1, keepdim=True)
        spread = (x.square().sum(dim=1) * y.square().sum(dim=1)).clamp_min(NCC_EPS).sqrt()
        return 1 - ((x * y).sum(dim=1) / spread + 1).mean() / 2


@LOSSES.register("CosimLoss", "cosim")
class CosimLoss(WeightedLoss):
    """One minus the cosine between the colours of each pixel: hue and saturation, not brightness.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        cosim_lambda: factor, as traiNNer-redux has it beside the weight.
    """

    def __init__(self, loss_weight: float = 1.0, cosim_lambda: float = 5.0) -> None:
        super().__init__(loss_weight)
        self.cosim_lambda = cosim_lambda

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return cosim_lambda (1 - mean cosine)."""
        require_rgb(prediction, "CosimLoss")
        x, y = (image.clamp(1e-12, 1) for image in (prediction, target))
        return self.cosim_lambda * (1 - F.cosine_similarity(x, y, dim=1, eps=1e-20).mean())
