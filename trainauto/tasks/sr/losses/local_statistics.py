"""Local means, variances and covariances under a Gaussian window, and what SSIM makes of them.

Source: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", 2004: a window of
11 x 11 px with sigma 1.5 px, K1 = 0.01, K2 = 0.03, for images with values from 0 to 1.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW_PX, SIGMA_PX = 11, 1.5
C1, C2 = 0.01**2, 0.03**2


def gaussian(size_px: int, sigma_px: float, device: torch.device) -> Tensor:
    """Return the normalised 1-D Gaussian of an odd size, (K,)."""
    distance = torch.arange(size_px, device=device, dtype=torch.float32) - size_px // 2
    window = torch.exp(-distance.square() / (2 * sigma_px**2))
    return window / window.sum()


def filtered(images: Tensor, window: Tensor, padding_px: int = 0) -> Tensor:
    """Filter each channel with a window, down and across, zeros around the images.

    Each channel is a group of its own: such convolutions never run in TF32, which variances would not survive.
    """
    channels, size = images.shape[1], len(window)
    down = window.view(1, 1, size, 1).expand(channels, -1, -1, -1)
    across = window.view(1, 1, 1, size).expand(channels, -1, -1, -1)
    images = F.conv2d(images, down, padding=(padding_px, 0), groups=channels)
    return F.conv2d(images, across, padding=(0, padding_px), groups=channels)


def moments(x: Tensor, y: Tensor, window: Tensor, padding_px: int = 0) -> tuple[Tensor, ...]:
    """Return local means of x and y, their variances and their covariance, from one filter of all five."""
    maps = filtered(torch.cat((x, y, x * x, y * y, x * y), dim=1), window, padding_px).chunk(5, dim=1)
    mean_x, mean_y, mean_xx, mean_yy, mean_xy = maps
    return mean_x, mean_y, mean_xx - mean_x.square(), mean_yy - mean_y.square(), mean_xy - mean_x * mean_y


def luminance(mean_x: Tensor, mean_y: Tensor) -> Tensor:
    """Return how alike local means are, up to 1."""
    return (2 * mean_x * mean_y + C1) / (mean_x.square() + mean_y.square() + C1)


def structure(variance_x: Tensor, variance_y: Tensor, covariance: Tensor) -> Tensor:
    """Return how alike contrast and structure are, up to 1."""
    return (2 * covariance + C2) / (variance_x + variance_y + C2)


def power(base: Tensor, exponent: float) -> Tensor:
    """Return a power of values from 0 on whose gradient is a number at 0, too."""
    return torch.where(base > 0, base, torch.finfo(base.dtype).tiny) ** exponent


def halved(image: Tensor) -> Tensor:
    """Return means of 2 x 2 pixels; a side that is odd is padded with zeros at both ends, which count."""
    return F.avg_pool2d(image, 2, padding=(image.shape[2] % 2, image.shape[3] % 2))
