"""Which way up an image is: what its EXIF tag says, read the same way for sizes, training and ``upscale``."""

from contextlib import suppress
from typing import Any

from numpy.typing import NDArray
from PIL import Image

ORIENTATION = 0x0112
WIDTH, HEIGHT = 0x0100, 0x0101
SIDEWAYS = frozenset({5, 6, 7, 8})
"""Values of the tag that swap width and height."""

AS_STORED = 1


def orientation_of(image: Image.Image) -> int:
    """Return the value of an opened file's EXIF tag, 1 to 8; 1 (as stored) where it has none or an unreadable one.

    Only what precedes the pixels is read. Decoders differ in what else they look at (XMP, text of PNG), so that none of
    them is asked to turn anything.
    """
    value: Any = AS_STORED
    if image.format == "TIFF":
        value = image.tag_v2.get(ORIENTATION, AS_STORED)  # type: ignore[attr-defined]
    elif image.info.get("exif"):
        exif = Image.Exif()
        with suppress(Exception):  # cameras write EXIF that breaks parsers in many ways; the pixels are fine
            exif.load(image.info["exif"])
            value = exif.get(ORIENTATION, AS_STORED)
    return value if value in range(1, 9) else AS_STORED


def upright_size_px(image: Image.Image) -> tuple[int, int]:
    """Return (height, width) of an opened file as it is seen."""
    width, height = image.size
    if image.format == "TIFF":  # Pillow has turned it or not, depending on its version
        width, height = image.tag_v2.get(WIDTH, width), image.tag_v2.get(HEIGHT, height)  # type: ignore[attr-defined]
    return (width, height) if orientation_of(image) in SIDEWAYS else (height, width)


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return stored pixels (H, W) or (H, W, C) as they are to be seen: a view."""
    if orientation in SIDEWAYS:
        pixels = pixels.swapaxes(0, 1)
    if orientation in {3, 4, 7, 8}:
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in {2, 3, 6, 7} else pixels
