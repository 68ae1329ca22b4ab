"""What images are decoded to: how many channels, of how many bits."""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

TRAINED_BITS, DEEPEST_BITS = 8, 16

_WIDER = 257
"""65535 / 255: 8 bits become 16 of the same brightness."""

_LUMA_OF_BGR = np.array([[24.966, 128.553, 65.481]]) / 255
_BLACK = 16


@dataclass(frozen=True)
class PixelFormat:
    """What images of a set are decoded to.

    Attributes:
        channels: 3 for RGB, 1 for grey.
        bits: of one sample, 8 or 16; images of the other depth are converted.
        is_luma: whether grey is Y of ITU-R BT.601, from 16 to 235 in 8 bits, as MATLAB's ``rgb2ycbcr`` and BasicSR have
            it; otherwise it is OpenCV's, from 0 to 255.
    """

    channels: int = 3
    bits: int = TRAINED_BITS
    is_luma: bool = False

    @property
    def pixel_bytes(self) -> int:
        """Bytes of one pixel, all its channels."""
        return self.channels * self.bits // 8

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        """Of the pixels."""
        return np.uint8 if self.bits == TRAINED_BITS else np.uint16

    @property
    def flags(self) -> int:
        """How OpenCV is to decode."""
        grey = self.channels == 1 and not self.is_luma
        deep = cv2.IMREAD_ANYDEPTH if self.bits > TRAINED_BITS else 0
        return (cv2.IMREAD_GRAYSCALE if grey else cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION | deep

    def converted(self, image: NDArray[Any]) -> NDArray[Any]:
        """Return what OpenCV decoded with these flags, (H, W) or (H, W, 3) in BGR, as (H, W, C) in RGB or grey.

        Colours are turned by a view: only the crop that is taken from it is ever copied.
        """
        if self.is_luma:
            black = _BLACK * (1 if image.dtype == np.uint8 else _WIDER)
            image = cv2.transform(image, np.hstack([_LUMA_OF_BGR, [[black]]]))
        return self.deepened(image[:, :, None] if image.ndim == 2 else image[:, :, ::-1])

    def deepened(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Return pixels of this depth; 8 bits become 16 of the same brightness."""
        return pixels.astype(np.uint16) * _WIDER if self.bits > TRAINED_BITS and pixels.dtype == np.uint8 else pixels
