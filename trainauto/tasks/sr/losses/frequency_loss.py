"""Losses that compare spectra."""

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.registry import LOSSES

FOCAL_FACTOR = 50.0
"""traiNNer-redux's and neosr's: the published loss is small beside pixel losses."""


@LOSSES.register("FFTLoss", "fft")
class FFTLoss(WeightedLoss):
    """Mean absolute difference of the real and imaginary parts of the spectra, which are not normalised.

    Differences that are the same everywhere weigh H x W times as much as in L1: give it a weight of 0.01 to 0.1.
    """

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return mean |p - t| of the two parts."""
        difference = torch.fft.rfft2(prediction) - torch.fft.rfft2(target)
        return torch.view_as_real(difference).abs().mean()


@LOSSES.register("FFLoss", "ff", "ff_loss")
class FFLoss(WeightedLoss):
    """Focal frequency loss: squared differences of spectra, those that differ most weighing most.

    Source: Jiang et al., "Focal Frequency Loss for Image Reconstruction and Synthesis", ICCV 2021, times 50 as in
    traiNNer-redux and neosr.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        alpha: power of the difference that a frequency weighs by.
        patch_factor: images are cut into so many patches along each side, each with a spectrum of its own. The border
            of images whose sides are no multiple of it is continued to the right and downwards.
        ave_spectrum: compare the mean spectra of the batch, the default of traiNNer-redux. Samples then depend on each
            other, and a batch that runs out of memory cannot be split into micro-batches.
        log_matrix: weigh by the logarithm of the difference plus one.
        batch_matrix: divide weights by the largest of the batch, not of each spectrum; couples samples as well.

    Raises:
        ValueError: ``patch_factor`` is below 1.
    """

    def __init__(
        self,
        loss_weight: float = 1.0,
        alpha: float = 1.0,
        patch_factor: int = 1,
        ave_spectrum: bool = True,
        log_matrix: bool = False,
        batch_matrix: bool = False,
    ) -> None:
        super().__init__(loss_weight)
        if patch_factor < 1:
            raise ValueError(f"patch_factor must be at least 1, got {patch_factor}")
        self.alpha, self.patch_factor, self.ave_spectrum = alpha, patch_factor, ave_spectrum
        self.log_matrix, self.batch_matrix = log_matrix, batch_matrix
        self.couples_samples = ave_spectrum or batch_matrix

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return 50 times the weighted mean squared difference."""
        difference = self._spectra(prediction - target)  # spectra and their means are linear
        if self.ave_spectrum:
            difference = difference.mean(dim=0, keepdim=True)
        squares = difference.real.square() + difference.imag.square()
        return FOCAL_FACTOR * (self._weights(squares.detach()) * squares).mean()

    def _spectra(self, image: Tensor) -> Tensor:
        """Return the spectra of all patches, (N, C, patches down, patches across, H', W')."""
        parts = self.patch_factor
        down, across = (-side % parts for side in image.shape[-2:])
        if down or across:
            image = F.pad(image, (0, across, 0, down), mode="replicate")
        n, channels, height, width = image.shape
        patches = image.reshape(n, channels, parts, height // parts, parts, width // parts).transpose(3, 4)
        spectra: Tensor = torch.fft.fft2(patches, norm="ortho")
        return spectra

    def _weights(self, squares: Tensor) -> Tensor:
        """Return how much each frequency weighs, 0 to 1; all weigh nothing where nothing differs."""
        weights = squares.sqrt().pow(self.alpha)
        if self.log_matrix:
            weights = (weights + 1).log()
        largest = weights.amax() if self.batch_matrix else weights.amax(dim=(-2, -1), keepdim=True)
        shares: Tensor = torch.nan_to_num(weights / largest, nan=0.0)
        return shares.clamp(0, 1)
