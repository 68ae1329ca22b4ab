"""PSNR and SSIM with the values that BasicSR gives, so that figures compare with published ones."""

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainauto.tasks.sr.metrics.registry import register_metric

PixelArray = NDArray[np.uint8]
Border = Annotated[int, Field(ge=0)]
WINDOW_PX = 11

# Weights of R, G and B in luma, for pixels from 0 to 255: ITU-R BT.601, studio swing (16 to 235).
_LUMA = np.array([65.481, 128.553, 24.966]) / 255
_LUMA_OFFSET = 16.0


@register_metric("calculate_psnr", "psnr", better_is_higher=True)
def calculate_psnr(
    image: PixelArray, reference: PixelArray, *, crop_border: Border = 0, test_y_channel: bool = False
) -> float:
    """Return the peak signal-to-noise ratio in dB: 10 log10(255^2 / MSE) over all pixels and channels.

    Args:
        image: (H, W, 3) in RGB order, or (H, W, 1).
        reference: the same shape.
        crop_border: pixels to leave out along each edge.
        test_y_channel: compare luma, not rounded; grey images are compared as they are.

    Returns:
        Infinity for identical images.

    Raises:
        ValueError: the images differ in shape, are not of the kind above, or nothing is left of them.
    """
    restored, other = _prepared(image, reference, crop_border, test_y_channel)
    mean_square = float(np.mean((restored - other) ** 2))
    return 10 * math.log10(255**2 / mean_square) if mean_square > 0 else math.inf


@register_metric("calculate_ssim", "ssim", better_is_higher=True)
def calculate_ssim(
    image: PixelArray, reference: PixelArray, *, crop_border: Border = 0, test_y_channel: bool = False
) -> float:
    """Return the structural similarity, at most 1: mean over channels and over the region that windows fit into.

    Source: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", 2004: Gaussian
    window of 11 x 11 px with sigma 1.5 px, K1 = 0.01, K2 = 0.03, population (co)variances.

    Args:
        image: (H, W, 3) in RGB order, or (H, W, 1).
        reference: the same shape.
        crop_border: pixels to leave out along each edge.
        test_y_channel: compare luma, not rounded; grey images are compared as they are.

    Raises:
        ValueError: as for :func:`calculate_psnr`, or the window does not fit into what is left.
    """
    restored, other = _prepared(image, reference, crop_border, test_y_channel)
    if min(restored.shape[:2]) < WINDOW_PX:
        raise ValueError(
            f"SSIM needs at least {WINDOW_PX}x{WINDOW_PX} px; an image of {_size(image)} px leaves {_size(restored)} "
            f"px without a border of {crop_border} px"
        )
    # Imported here: it loads scipy, which takes longer than everything else in this package.
    from skimage.metrics import structural_similarity

    # truncate is left at 3.5, which makes the Gaussian of sigma 1.5 reach 5 px to each side: 11 px in all. The mean
    # leaves out those 5 px along the edges, so that how edges are continued does not matter.
    similarity = structural_similarity(  # type: ignore[no-untyped-call]
        restored, other, data_range=255, channel_axis=2, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
    )
    return float(similarity)


def _prepared(
    image: PixelArray, reference: PixelArray, crop_border: int, test_y_channel: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check, crop and convert both images to what is compared, (H, W, C)."""
    if image.shape != reference.shape:
        raise ValueError(f"the image is {_shape(image)}, its reference {_shape(reference)}")
    if image.ndim != 3 or image.shape[2] not in (1, 3) or image.dtype != np.uint8 or reference.dtype != np.uint8:
        raise ValueError(
            f"metrics take uint8 images of shape (H, W, 3) or (H, W, 1), not {image.dtype} and {reference.dtype} "
            f"of shape {image.shape}"
        )
    if crop_border < 0 or 2 * crop_border >= min(image.shape[:2]):
        raise ValueError(f"crop_border {crop_border} leaves nothing of an image of {_size(image)} px")
    restored, other = (_cropped(pixels, crop_border).astype(np.float64) for pixels in (image, reference))
    return (_luma(restored), _luma(other)) if test_y_channel and image.shape[2] == 3 else (restored, other)


def _cropped(pixels: PixelArray, border: int) -> PixelArray:
    return pixels[border : pixels.shape[0] - border, border : pixels.shape[1] - border]


def _luma(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    luma: NDArray[np.float64] = pixels @ _LUMA + _LUMA_OFFSET
    return luma[..., None]


def _shape(pixels: NDArray[np.generic]) -> str:
    return "x".join(str(side) for side in pixels.shape)


def _size(pixels: NDArray[np.generic]) -> str:
    return _shape(pixels[..., 0])
