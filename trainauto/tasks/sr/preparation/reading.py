"""Reading an image of 8 or 16 bits at its depth, and what is worth saying of it."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.sr.data.exif_orientation import AS_STORED, orientation_of
from trainauto.tasks.sr.data.image_io import decoded, read_header
from trainauto.tasks.sr.data.pixel_format import PixelFormat

DEPTHS = (8, 16)
ALPHA, CMYK, GREY, PALETTE, TURNED = "alpha channel dropped", "CMYK", "grey", "palette", "turned by EXIF"


@dataclass(frozen=True)
class ReadImage:
    """An image, decoded.

    Attributes:
        pixels: (H, W, 3) RGB, upright, uint8 or uint16.
        remarks: what it was before.
    """

    pixels: NDArray[Any]
    remarks: tuple[str, ...]


def read_at_depth(path: str) -> ReadImage:
    """Decode an image to RGB, with 16 bits where the file has them, upright; alpha is dropped.

    Raises:
        InputError: it cannot be read or decoded, is damaged, or has another depth; names it.
    """
    header = read_header(path)
    if header.bits not in DEPTHS:
        what = f"{path} has {header.bits} bits a sample, which cannot be decoded"
        raise InputError(Problem(what, advice="Save it with 8 or 16 bits."))
    with Image.open(path) as image:
        remarks = _remarks(image)
    pixels, damage = decoded(path, PixelFormat(3, header.bits))
    if damage:
        raise InputError(Problem(f"{path} is damaged: {damage}", advice="Copy or download it again, or leave it out."))
    return ReadImage(pixels, remarks)


def _remarks(image: Image.Image) -> tuple[str, ...]:
    has_alpha = image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info
    facts = {
        ALPHA: has_alpha,
        CMYK: image.mode == "CMYK",
        GREY: image.mode[:1] in {"1", "L", "I", "F"},
        PALETTE: image.mode in {"P", "PA"},
        TURNED: orientation_of(image) != AS_STORED,
    }
    return tuple(remark for remark, holds in facts.items() if holds)
